"""The table of paired differences: RR-ClArC minus each rival, image by image."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.metrics import Metric
from hansfree.report.numbers import MISSING, write_points
from hansfree.report.reading import FIRST, method_title
from hansfree.reproduce.averages import SIGNIFICANT, method_scores, paired_lead, paper_place
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects
from hansfree.reproduce.tables.markdown import markdown_table

DIFFERENCES = ("accuracy_clean", "accuracy_biased", "balanced_accuracy_clean", "balanced_accuracy_biased")
_NOTE = (
    f"{method_title(FIRST)} minus the method of the line on the same test images, in points: the difference of the "
    "means over the seeds, and its 95 % interval, of the images (paired, as the first seed has them) and of the seeds "
    f"together: {SIGNIFICANT:.3g} standard errors to each side (normal approximation). **Bold**: it leaves out 0."
)


def write_differences(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return by how much RR-ClArC is ahead of every rival, with intervals; a line per subject and rival."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        known, scores = (facts or {}).get(key, Facts()), method_scores(rows)
        for rival in sorted(scores.keys() - {FIRST}, key=paper_place):
            leads = [paired_lead(scores, known, FIRST, rival, metric) for metric in DIFFERENCES]
            if any(leads):
                body.append([key.title, method_title(rival), *map(_interval, leads)])
    if not body:
        return f"No image was answered both by {method_title(FIRST)} and by a rival.\n"
    heads = ["subject", f"{method_title(FIRST)} minus", *(Metric.named(metric).label for metric in DIFFERENCES)]
    return f"{markdown_table(heads, body)}\n\n{_NOTE}\n"


def _interval(lead: tuple[float, float] | None) -> str:
    if lead is None:
        return MISSING
    difference, half = lead[0], SIGNIFICANT * lead[1]
    text = f"{write_points(difference)} [{write_points(difference - half)}, {write_points(difference + half)}]"
    return f"**{text}**" if abs(difference) > half else text
