"""Differences and intervals around scores that are made up: as a run keeps them, with plausible errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist

from hansfree._internal.statistics import Interval
from hansfree.evaluation.results import Row, tested_rows
from hansfree.metrics import Difference

COUNTED = ("accuracy_clean", "accuracy_biased", "balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate")


def _counted(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Return the scores of the chosen models that are counted over images, by metric and method."""
    found: dict[str, dict[str, Row]] = {metric: {} for metric in COUNTED}
    for row in tested_rows(rows):
        if row.metric in found and row.chosen and not row.group:
            found[row.metric].setdefault(row.method, row)
    return found


def pair(method: str, rival: str, metric: str, value: float, *, stderr: float = 0.01) -> Difference:
    """Return a made-up difference on the same images."""
    p = None if metric.startswith("balanced") else 2 * NormalDist().cdf(-abs(value) / stderr)
    return Difference(method, rival, metric, value, stderr, value - 1.96 * stderr, value + 1.96 * stderr, p)


def pairs_of(rows: Sequence[Row]) -> list[Difference]:
    """Return every method minus every earlier one."""
    return [
        pair(method, rival, metric, scores[method].value - scores[rival].value)
        for metric, scores in _counted(rows).items()
        for rival, method in combinations(scores, 2)
    ]


def intervals_of(rows: Sequence[Row]) -> dict[str, dict[str, Interval]]:
    found: dict[str, dict[str, Interval]] = {}
    for metric, scores in _counted(rows).items():
        for method, row in scores.items():
            half = 1.96 * (row.stderr or 0.0)
            found.setdefault(method, {})[metric] = row.value - half, row.value + half
    return found
