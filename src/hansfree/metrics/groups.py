"""Groups of images by class and artifact: a model is as safe as it is in the worst of them."""

from __future__ import annotations

from typing import get_args

import numpy as np

from hansfree.errors import DataError
from hansfree.metrics.base import MIN_GROUP, Metric, Score, Unknown, large_classes
from hansfree.metrics.evidence import Condition, Evidence, Integers


class AccuracyWorstGroup(Metric, name="accuracy_worst_group"):
    """Lowest accuracy among the groups (class, without or with artifact) of at least `MIN_GROUP` images.

    The standard error is that group's own. The lowest of several noisy accuracies lies on average a little below the
    truth, so the value errs on the safe side.
    """

    ideal = 1.0
    label = "Worst group"
    description = f"Lowest accuracy of a class without or with the artifact, groups of at least {MIN_GROUP} images."

    def compute(self, evidence: Evidence) -> Score:
        """Score every group that is large enough, and return the lowest; the first of equals."""
        self.check_known(evidence)
        groups = []
        for condition in get_args(Condition):
            correct, labels = evidence.is_correct(condition), evidence.labels_of(condition)
            for label in large_classes(labels):
                groups.append(self.proportion(correct[labels == label], group=group_name(label, condition)))
        return min(groups, key=lambda score: score.value)

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return itself where no group is large enough."""
        sets = (labels,) if labels_biased is None else (labels, labels_biased)
        largest = max(int(np.unique(of, return_counts=True)[1].max(initial=0)) for of in sets)
        if largest >= MIN_GROUP:
            return []
        reason = f"a class needs at least {MIN_GROUP} images; the largest has {largest}"
        return [Unknown(self.name, largest, reason)]


def group_name(label: int, condition: Condition) -> str:
    """Return what results call the group, such as ``"class 2 with artifact"``."""
    return f"class {label} {'without' if condition == 'clean' else 'with'} artifact"


def class_group(label: int) -> str:
    """Return what results call all images of a class, in one condition or the other."""
    return f"class {label}"


def majority_rate(labels: Integers) -> float:
    """Return the accuracy of always answering the most frequent class: what a useful model must beat."""
    if len(labels) == 0:
        raise DataError("The majority rate needs at least 1 label, and none is given.")
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def chance_level(labels: Integers) -> float:
    """Return the balanced accuracy of any answer that is always the same: one of the classes present is all right."""
    if len(labels) == 0:
        raise DataError("The chance level needs at least 1 label, and none is given.")
    return 1 / len(np.unique(labels))
