"""How right a model is: accuracy, balanced accuracy, AUROC, and the worst group."""

from __future__ import annotations

from typing import ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics.base import (
    MIN_GROUP,
    Condition,
    Evidence,
    Floats,
    Integers,
    Metric,
    Score,
    Unknown,
    few_classes,
    few_images,
    large_classes,
)
from hansfree.placements import share_below


class Accuracy(Metric):
    """Share of images whose predicted class is the label; an image without prediction is wrong."""

    ideal = 1.0
    condition: ClassVar[Condition]

    def compute(self, evidence: Evidence) -> Score:
        """Count the hits."""
        self.check_known(evidence)
        return self.proportion(evidence.is_correct(self.condition))

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return itself where the images with the artifact are others, and few."""
        if self.condition == "clean" or labels_biased is None:
            return []
        return few_images(self.name, len(labels_biased))


class AccuracyClean(Accuracy, name="accuracy_clean"):
    """Accuracy on the images as they are."""

    condition = "clean"
    label = "Accuracy, clean"
    description = "Share of correct predictions on images without the artifact."


class AccuracyBiased(Accuracy, name="accuracy_biased"):
    """Accuracy on the same images with the artifact inserted; where it is in the scenes, on those that have it."""

    condition = "biased"
    label = "Accuracy, biased"
    description = "Share of correct predictions on images with the artifact."


class BalancedAccuracy(Metric):
    """Mean recall over the classes present, so that always answering the most frequent class does not pay.

    Args:
        least: Images that a class needs to count where those with the artifact are others than the clean ones. A
            choice between models may take every class: what is rare there is what the shortcut gets wrong.
    """

    ideal = 1.0
    condition: ClassVar[Condition]

    def __init__(self, *, least: int = MIN_GROUP) -> None:
        self.least = least

    def compute(self, evidence: Evidence) -> Score:
        """Average the recalls; their errors are independent, as no image belongs to two classes."""
        correct, labels = evidence.is_correct(self.condition), evidence.labels_of(self.condition)
        if self.least >= MIN_GROUP:
            self.check_known(evidence)
        _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        recalls = np.bincount(index, weights=correct) / counts
        if self.condition == "biased" and not evidence.is_paired:
            recalls, counts = recalls[counts >= self.least], counts[counts >= self.least]
        if counts.size == 0:
            raise UndefinedMetricError(f"{self.name} needs at least 1 image, and none is given.")
        variance = np.sum(recalls * (1 - recalls) / counts) / counts.size**2
        return self.score(recalls.mean(), np.sqrt(variance), counts.sum())

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return itself where the images with the artifact are others, and mostly of one class."""
        if self.condition == "clean" or labels_biased is None:
            return []
        return few_classes(self.name, labels_biased)


class BalancedAccuracyClean(BalancedAccuracy, name="balanced_accuracy_clean"):
    """Balanced accuracy on the images as they are."""

    condition = "clean"
    label = "Balanced accuracy, clean"
    description = "Mean recall over the classes on images without the artifact."


class BalancedAccuracyBiased(BalancedAccuracy, name="balanced_accuracy_biased"):
    """Balanced accuracy on the same images with the artifact inserted, or on those that have it in the scene."""

    condition = "biased"
    label = "Balanced accuracy, biased"
    description = "Mean recall over the classes on images with the artifact."


class AUROC(Metric):
    """Area under the ROC curve, one class against the rest, averaged over the classes present.

    Images are ranked by the class's log-odds: the order of the softmax probability, without its ties where that
    rounds to 1. The standard error is from each image's influence (DeLong's placements), averaged over the classes
    before squaring: one image counts in the curve of every class, so the curves are not independent.
    """

    ideal = 1.0
    condition: ClassVar[Condition]

    def compute(self, evidence: Evidence) -> Score:
        """Average areas and influences over the classes."""
        self.check_known(evidence)
        labels = evidence.labels_of(self.condition)
        classes = np.unique(labels)
        if classes.size < 2:
            raise UndefinedMetricError(f"{self.name} needs two classes, the labels hold only {classes[0]}.")
        if self.condition == "biased" and not evidence.is_paired:
            classes = large_classes(labels)
        odds = ordered_odds(self.name, evidence.logits(self.condition))
        areas, influence = [], np.zeros(len(odds))
        for label in classes:
            area, share = area_under(odds[:, label], labels == label)
            areas.append(area)
            influence += share / classes.size
        return self.score(sum(areas) / classes.size, np.sqrt(np.sum(influence**2)), influence.size)

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return itself where the images with the artifact are others, and mostly of one class."""
        if self.condition == "clean" or labels_biased is None:
            return []
        return few_classes(self.name, labels_biased)


class AUROCClean(AUROC, name="auroc_clean"):
    """AUROC on the images as they are."""

    condition = "clean"
    label = "AUROC, clean"
    description = "Area under the ROC curve, mean over classes, on images without the artifact."


class AUROCBiased(AUROC, name="auroc_biased"):
    """AUROC on the same images with the artifact inserted, or on those that have it in the scene."""

    condition = "biased"
    label = "AUROC, biased"
    description = "Area under the ROC curve, mean over classes, on images with the artifact."


def ordered_odds(metric: str, logits: Floats) -> Floats:
    """Return the log-odds by which a metric ranks images; those of a broken model have no order."""
    if not np.isfinite(logits.max(axis=1)).all():
        raise UndefinedMetricError(f"{metric} is undefined: some logits are NaN or infinite and have no order.")
    return log_odds(logits)


def log_odds(logits: Floats) -> Floats:
    """Return log(p / (1 - p)) of every softmax probability p, exact also where p rounds to 0 or 1."""
    total = np.logaddexp.reduce(logits, axis=1, keepdims=True)
    rows, top = np.arange(len(logits)), logits.argmax(axis=1)
    # Only the top class can have p above 1/2, where 1 - p cancels: sum its rivals instead.
    rivals = logits.copy()
    rivals[rows, top] = -np.inf
    rest = np.logaddexp.reduce(rivals, axis=1)
    share = np.exp(logits - total)
    # Below the top p is at most 1/2; more is rounding, between huge logits that floats cannot tell apart.
    share = np.minimum(share, 0.5)
    share[rows, top] = 0.0
    odds = np.minimum(logits - total - np.log1p(-share), 0.0)
    odds[rows, top] = logits[rows, top] - rest
    return np.asarray(odds, dtype=np.float64)


def area_under(scores: Floats, is_positive: NDArray[np.bool_]) -> tuple[float, Floats]:
    """Return the area, and per image its placement's deviation from it over the size of its side (DeLong's n - 1).

    A side of a single image shows no spread and adds none.
    """
    positives, negatives = scores[is_positive], scores[~is_positive]
    influence = np.empty_like(scores)
    placements = share_below(positives, negatives)
    area = float(placements.mean())
    influence[is_positive] = _per_side(placements - area)
    influence[~is_positive] = _per_side(1 - share_below(negatives, positives) - area)
    return area, influence


def _per_side(deviations: Floats) -> Floats:
    return np.asarray(deviations / np.sqrt(deviations.size * max(deviations.size - 1, 1)), dtype=np.float64)


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
