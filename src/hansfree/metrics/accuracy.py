"""How often the model is right: over all images, and as the mean over classes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.base import MIN_GROUP, Metric, Score, Unknown, few_classes, few_images
from hansfree.metrics.evidence import Condition, Evidence, Integers


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
