"""The table of an ablation of the epochs: validation scores after the first, the middle and the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from hansfree.metrics import Metric
from hansfree.report.reading import FIRST
from hansfree.reproduce.averages import average, write_average
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.tables.markdown import markdown_table
from hansfree.results import Row

T = TypeVar("T", int, float)

_METRICS = ("accuracy_biased", "accuracy_clean", "balanced_accuracy_biased", "balanced_accuracy_clean")
_MOST_STRENGTHS = 5
_EPOCHS = 3
_NOTE = (
    "All in %, on the validation images, ± standard error; of many strengths and epochs, some evenly spread. A "
    "line of zeros: the fine-tuning diverged at this strength."
)


def write_epochs(subjects: Subjects) -> str:
    """Return the scores after a few epochs, a line per subject and strength, for a few strengths."""
    found = {key: [row for row in rows if _is_watched(row)] for key, rows in subjects.items()}
    every = [row for rows in found.values() for row in rows]
    metrics = [name for name in _METRICS if any(row.metric == name for row in every)]
    epochs = _spread({row.epoch or 0 for row in every}, _EPOCHS)
    columns = [(metric, epoch) for metric in metrics for epoch in epochs]
    body: list[Sequence[str]] = []
    for key, rows in found.items():
        means = average(rows, lambda row: (row.strength or 0.0, row.metric, row.epoch or 0))
        for strength in _spread({strength for strength, _, _ in means}, _MOST_STRENGTHS):
            cells = [write_average(metric, means.get((strength, metric, epoch))) for metric, epoch in columns]
            body.append([key.title, f"{strength:g}", *cells])
    heads = ["subject", "strength", *(f"{Metric.named(metric).label}: epoch {epoch}" for metric, epoch in columns)]
    return f"{markdown_table(heads, body)}\n\n{_NOTE}\n"


def _is_watched(row: Row) -> bool:
    return row.method == FIRST and row.epoch is not None and row.strength is not None and row.metric in _METRICS


def _spread(values: set[T], most: int) -> list[T]:
    """Return a few of the values, evenly spread, both ends among them."""
    ordered = sorted(values)
    return [ordered[i] for i in np.unique(np.linspace(0, len(ordered) - 1, most).round().astype(int))] if values else []
