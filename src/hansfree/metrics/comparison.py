"""Paired differences between two models on the same images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from hansfree._internal.statistics import (
    STDERRS,
    Floats,
    Integers,
    Interval,
    balanced_difference_interval,
    balanced_interval,
    difference_interval,
    mcnemar,
    paired_balanced_difference,
    paired_difference,
    share_interval,
)
from hansfree.metrics.base import MIN_GROUP, NO_PREDICTION, Condition, find_unavailable, large_classes
from hansfree.metrics.effects import FlipRate, ProbabilityChange, is_flipped


def lost_classes(predictions_before: Integers, predictions_after: Integers) -> tuple[int, ...]:
    """Return the classes that were predicted at least once before and never after."""
    lost = np.setdiff1d(predictions_before, predictions_after)
    return tuple(int(label) for label in lost if label != NO_PREDICTION)


Answers = Mapping[Condition, Integers]  # the predicted class of every test image
# right without the artifact, right with it, changed by it; with it, not called by the biased class
_Hits = Literal["clean", "biased", "flips", "spared"]
_HitsByMethod = Mapping[str, Mapping[_Hits, np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """A score of one method minus a rival's on the same images, with its 95 % interval and McNemar's p.

    Only shares of images have a p, not means over classes.
    """

    method: str
    rival: str
    metric: str
    value: float
    stderr: float
    low: float
    high: float
    p: float | None = None
    group: int | None = None  # the class that it is about; None: all images

    @property
    def reversed(self) -> Difference:
        """The same from the rival's side."""
        ends = -self.high, -self.low
        return Difference(self.rival, self.method, self.metric, -self.value, self.stderr, *ends, self.p, self.group)


class _View(NamedTuple):
    """What a score counts: which outcome, of which images, and by which classes where it is a mean over them."""

    metric: str
    hits: _Hits
    rows: np.ndarray
    labels: Integers | None = None


def score_intervals(
    answers: Answers, labels: Integers, labels_biased: Integers | None, *, seed: int
) -> dict[str, Interval]:
    """Return the 95 % interval of the accuracies and the flip rate of one model, by metric.

    Args:
        labels_biased: The labels of the images with the artifact; None where it was inserted into the clean ones.
    """
    hits = _hits(answers, labels, labels_biased)
    return {
        metric: share_interval(hits[kind][rows]) if of is None else balanced_interval(hits[kind][rows], of, seed=seed)
        for metric, kind, rows, of in _views(labels, labels_biased)
    }


def compare_answers(
    answers: Mapping[str, Answers], labels: Integers, labels_biased: Integers | None, *, biased_class: int, seed: int
) -> list[Difference]:
    """Return every model minus every earlier one: accuracies, flip rate, and the biased class's specificity.

    Args:
        labels_biased: The labels of the images with the artifact; None where it was inserted into the clean ones.
        biased_class: Of its specificity with the artifact is asked: images of other classes that it is not said of.
    """
    hits = {name: _hits(each, labels, labels_biased, biased_class) for name, each in answers.items()}
    others, views = (labels if labels_biased is None else labels_biased) != biased_class, _views(labels, labels_biased)
    if others.sum() >= MIN_GROUP:
        views.append(_View("specificity_biased", "spared", others))
    return [
        _compare(method, rival, view, hits, seed=seed) for rival, method in combinations(answers, 2) for view in views
    ]


def compare_classes(answers: Mapping[str, Answers], labels: Integers, *, rival: str) -> list[Difference]:
    """Return every model minus one of them: the sensitivity of each class, on images without the artifact."""
    hits: _HitsByMethod = {name: {"clean": each["clean"] == labels} for name, each in answers.items()}
    return [
        _compare(method, rival, _View("sensitivity_clean", "clean", labels == label), hits, group=label)
        for label in large_classes(labels).tolist()
        for method in answers
        if method != rival
    ]


def compare_probability_changes(pulls: Mapping[str, Floats]) -> list[Difference]:
    """Return every model minus every earlier one in the mean of what inserting the artifact does to a probability.

    Args:
        pulls: Per model and image, the biased class's probability with the artifact minus that without it. A model
            with one that is not finite is left out.
    """
    known = {name: each for name, each in pulls.items() if np.isfinite(each).all() and each.size >= MIN_GROUP}
    found = []
    for rival, method in combinations(known, 2):
        each = np.asarray(known[method], dtype=np.float64) - known[rival]
        mean, error = float(each.mean()), float(each.std(ddof=1) / np.sqrt(each.size))
        ends = mean - STDERRS * error, mean + STDERRS * error
        found.append(Difference(method, rival, ProbabilityChange.name, mean, error, *ends))
    return found


def _compare(
    method: str, rival: str, view: _View, hits: _HitsByMethod, *, seed: int = 0, group: int | None = None
) -> Difference:
    ours, theirs = (hits[name][view.hits][view.rows] for name in (method, rival))
    if view.labels is None:
        ends, p = difference_interval(ours, theirs), mcnemar(ours, theirs)
        return Difference(method, rival, view.metric, *paired_difference(ours, theirs), *ends, p, group)
    ends = balanced_difference_interval(ours, theirs, view.labels, seed=seed)
    return Difference(method, rival, view.metric, *paired_balanced_difference(ours, theirs, view.labels), *ends)


def _views(labels: Integers, labels_biased: Integers | None) -> list[_View]:
    """Return what can be counted as the metrics of the same names count; nothing of fewer than `MIN_GROUP` images."""
    unknown = {found.metric for found in find_unavailable(labels, labels_biased) if found.group is None}
    of = labels if labels_biased is None else labels_biased
    every, all_biased = np.ones(len(labels), dtype=bool), np.ones(len(of), dtype=bool)
    counted = all_biased if labels_biased is None else np.isin(of, large_classes(of))
    views = [
        _View("accuracy_clean", "clean", every),
        _View("balanced_accuracy_clean", "clean", every, labels),
        _View("accuracy_biased", "biased", all_biased),
        _View("balanced_accuracy_biased", "biased", counted, of[counted]),
    ]
    if labels_biased is None:
        views.append(_View(FlipRate.name, "flips", every))
    return [view for view in views if view.metric not in unknown and view.rows.sum() >= MIN_GROUP]


def _hits(
    answers: Answers, labels: Integers, labels_biased: Integers | None, biased_class: int | None = None
) -> dict[_Hits, np.ndarray]:
    clean, biased = answers["clean"], answers["biased"]
    return {
        "clean": clean == labels,
        "biased": biased == (labels if labels_biased is None else labels_biased),
        **({"flips": is_flipped(clean, biased)} if labels_biased is None else {}),
        "spared": (biased != biased_class) & (biased != NO_PREDICTION),
    }
