"""The table of an ablation: a line per variant of a method, at its chosen strength."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.metrics import Metric
from hansfree.reproduce.averages import chosen_scores, final_rows, unseeded, write_average
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
_NOTE = "All in %, on the test images, ± standard error. Strength none: no strength of it was fit to be taken."


def write_variants(subjects: Subjects) -> str:
    """Return the scores of every variant that was run; one without a strength fit to be taken has none."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        chosen = chosen_scores(rows)
        variants = dict.fromkeys(unseeded(row) for row in final_rows(rows) if not row.method.startswith("cav:"))
        for variant in variants:
            scores = chosen.get(variant, {})
            strength = next((f"{mean.strength:g}" for mean in scores.values() if mean.strength is not None), "")
            cells = [write_average(metric, scores.get(metric)) for metric in _METRICS]
            body.append([key.title, variant.title(variants), strength if variant in chosen else "none", *cells])
    heads = ["subject", "variant", "strength", *(Metric.named(metric).label for metric in _METRICS)]
    return f"{markdown_table(heads, body)}\n\n{_NOTE}\n"
