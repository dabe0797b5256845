"""Groups of images by class and artifact: a model is as safe as it is in the worst of them."""

from __future__ import annotations

from typing import get_args

import numpy as np

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics.base import Condition, Evidence, Integers, Metric, Score

MIN_GROUP = 25  # below this the accuracy of a group "cannot be known": its standard error reaches 10 points


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
        groups, largest = [], 0
        for condition in get_args(Condition):
            correct, labels = evidence.is_correct(condition), evidence.labels_of(condition)
            classes, counts = np.unique(labels, return_counts=True)
            largest = max(largest, int(counts.max()))
            for label in classes[counts >= MIN_GROUP]:
                groups.append(self.proportion(correct[labels == label], group=group_name(label, condition)))
        if not groups:
            raise UndefinedMetricError(
                f"{self.name} needs a class of at least {MIN_GROUP} images; the largest has {largest}."
            )
        return min(groups, key=lambda score: score.value)


def group_name(label: int, condition: Condition) -> str:
    """Return what results call the group, such as ``"class 2 with artifact"``."""
    return f"class {label} {'without' if condition == 'clean' else 'with'} artifact"


def majority_rate(labels: Integers) -> float:
    """Return the accuracy of always answering the most frequent class: what a useful model must beat."""
    if len(labels) == 0:
        raise DataError("The majority rate needs at least 1 label, and none is given.")
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))
