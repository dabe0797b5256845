"""Run times, read from rows."""

from __future__ import annotations

from collections.abc import Iterable

from hansfree.reproduce.averages import Average, average, paper_place
from hansfree.results import Row

SECONDS = "seconds_per_epoch"  # the metric of a row that holds a run time; its seed is the number of the run


def seconds_of(rows: Iterable[Row]) -> dict[str, Average]:
    """Return the mean seconds per epoch by method, in the paper's order."""
    found = average((row for row in rows if row.metric == SECONDS), lambda row: row.method)
    return dict(sorted(found.items(), key=lambda item: paper_place(item[0])))
