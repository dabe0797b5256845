"""The table of an ablation of the strength: Vanilla, then every strength from weak to strong."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.metrics import Metric
from hansfree.report.reading import FIRST, method_title
from hansfree.reproduce.averages import average, final_rows, write_average
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.tables.markdown import markdown_table

_METRICS = (
    "accuracy_clean",
    "accuracy_biased",
    "balanced_accuracy_clean",
    "balanced_accuracy_biased",
    "tcav",  # by image: positions are counted at the chosen strength only
)
_NOTE = (
    "All in %, on the test images, ± standard error. **Bold**: the strength that the validation images chose. TCAV: "
    "share of images whose derivative along the direction, summed over positions, is positive. A line of zeros: the "
    "fine-tuning diverged at this strength, and a model without finite answers is right about nothing."
)


def write_path(subjects: Subjects) -> str:
    """Return the scores of Vanilla and of RR-ClArC at every strength, a line each."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        final = [row for row in final_rows(rows) if row.method in ("vanilla", FIRST) and row.metric in _METRICS]
        means = average(final, lambda row: (row.method, row.strength, row.metric))
        chosen = {(row.method, row.strength) for row in final if row.chosen and row.strength is not None}
        lines = {(name, strength) for name, strength, _ in means}
        for name, strength in sorted(lines, key=lambda line: (line[0] == FIRST, line[1] or 0.0)):
            title = method_title(name) if strength is None else f"{strength:g}"
            cells = [write_average(metric, means.get((name, strength, metric))) for metric in _METRICS]
            body.append([key.title, f"**{title}**" if (name, strength) in chosen else title, *cells])
    heads = ["subject", f"strength of {method_title(FIRST)}", *(Metric.named(metric).label for metric in _METRICS)]
    return f"{markdown_table(heads, body)}\n\n{_NOTE}\n"
