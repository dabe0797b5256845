"""How often the model is right: over all images, and as the mean over classes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hansfree.metrics.base import Condition, Evidence, Metric, Score


class Accuracy(Metric):
    """Share of images whose predicted class is the label; an image without prediction is wrong."""

    ideal = 1.0
    condition: ClassVar[Condition]

    def compute(self, evidence: Evidence) -> Score:
        """Count the hits."""
        return self.proportion(evidence.is_correct(self.condition))


class AccuracyClean(Accuracy, name="accuracy_clean"):
    """Accuracy on the images as they are."""

    condition = "clean"
    label = "Accuracy, clean"
    description = "Share of correct predictions on the images without the artifact."


class AccuracyBiased(Accuracy, name="accuracy_biased"):
    """Accuracy on the same images with the artifact inserted."""

    condition = "biased"
    label = "Accuracy, biased"
    description = "Share of correct predictions on the same images with the artifact inserted."


class BalancedAccuracy(Metric):
    """Mean recall over the classes present, so that always answering the most frequent class does not pay."""

    ideal = 1.0
    condition: ClassVar[Condition]

    def compute(self, evidence: Evidence) -> Score:
        """Average the recalls; their errors are independent, as no image belongs to two classes."""
        correct = evidence.is_correct(self.condition)
        _, index, counts = np.unique(evidence.labels_of(self.condition), return_inverse=True, return_counts=True)
        recalls = np.bincount(index, weights=correct) / counts
        variance = np.sum(recalls * (1 - recalls) / counts) / counts.size**2
        return self.score(recalls.mean(), np.sqrt(variance), correct.size)


class BalancedAccuracyClean(BalancedAccuracy, name="balanced_accuracy_clean"):
    """Balanced accuracy on the images as they are."""

    condition = "clean"
    label = "Balanced accuracy, clean"
    description = "Mean recall over the classes on the images without the artifact."


class BalancedAccuracyBiased(BalancedAccuracy, name="balanced_accuracy_biased"):
    """Balanced accuracy on the same images with the artifact inserted."""

    condition = "biased"
    label = "Balanced accuracy, biased"
    description = "Mean recall over the classes on the same images with the artifact inserted."
