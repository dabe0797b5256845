"""The table of CAVs: how well each aligns with the true direction, and how well it tells the artifact."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.report.numbers import MISSING
from hansfree.reproduce.averages import Average, cav_scores
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.tables.markdown import markdown_table

_METRICS = {"alignment_sample": "s", "alignment_mean": "s̄", "cav_auc": "AUC"}
_NOTE = (
    "Cosine between the CAV and the change of the pooled activations when the artifact is put in: mean over the test "
    "images (s), and of the mean change (s̄). AUC: how well the score along the CAV tells held-out images with the "
    "artifact from those without. ± is the standard error over the images; best alignment in bold."
)


def write_alignments(subjects: Subjects) -> str:
    """Return the quality of every CAV, a line per subject and CAV."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        found = {metric: cav_scores(rows, metric) for metric in _METRICS}
        best = {metric: max((mean.value for mean in means.values()), default=None) for metric, means in found.items()}
        for name in dict.fromkeys(name for means in found.values() for name in means):
            cells = [_cell(means.get(name), best[metric]) for metric, means in found.items()]
            body.append([key.title, name, *cells])
    return f"{markdown_table(['subject', 'CAV', *_METRICS.values()], body)}\n\n{_NOTE}\n"


def _cell(mean: Average | None, best: float | None) -> str:
    if mean is None:
        return MISSING
    text = f"{mean.value:.3f}" + (f" ± {mean.stderr:.3f}" if mean.stderr is not None else "")
    return f"**{text}**" if mean.value == best else text
