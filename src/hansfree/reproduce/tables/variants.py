"""The table of an ablation: a line per variant of a method, at its chosen strength."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.metrics import Metric
from hansfree.reproduce.averages import chosen_scores, write_average
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.tables.markdown import markdown_table

_METRICS = (
    "accuracy_clean",
    "accuracy_biased",
    "balanced_accuracy_clean",
    "balanced_accuracy_biased",
    "flip_rate",
    "tcav",
)


def write_variants(subjects: Subjects) -> str:
    """Return the scores of every variant that had a strength fit to be taken."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        variants = chosen_scores(rows)
        for variant, scores in variants.items():
            strength = next((mean.strength for mean in scores.values() if mean.strength is not None), None)
            cells = [write_average(metric, scores.get(metric)) for metric in _METRICS]
            body.append([key.title, variant.title(variants), "" if strength is None else f"{strength:g}", *cells])
    heads = ["subject", "variant", "strength", *(Metric.named(metric).label for metric in _METRICS)]
    return markdown_table(heads, body) + "\n"
