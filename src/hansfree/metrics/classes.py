"""Medicine's metrics, a score for every class: sensitivity, specificity and the area under its ROC curve."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.accuracy import area_under, class_group, ordered_odds
from hansfree.metrics.base import (
    MIN_GROUP,
    NO_PREDICTION,
    Condition,
    Evidence,
    Integers,
    Metric,
    Score,
    Unknown,
    predict_classes,
)


class ClassMetric(Metric):
    """One score for every class of which enough images are known; a member writes `of_class` and `count`.

    Neither inserted nor natural artifacts make a class larger, so the limit holds for both.
    """

    ideal = 1.0
    is_per_class = True
    condition: ClassVar[Condition]

    def answers(self, evidence: Evidence) -> NDArray[Any]:
        """Return what the scores of all classes are taken from, worked out once: the predicted classes."""
        return predict_classes(evidence.logits(self.condition))

    @abstractmethod
    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Return the score of one class, whose images are those inside."""

    @abstractmethod
    def count(self, labels: Integers, label: int) -> int:
        """Return over how many images the score of a class is taken: of two sides the smaller."""

    def compute(self, evidence: Evidence) -> Score:
        """Return the lowest score of a class, under that class's name; the first of equals."""
        scores = self.compute_all(evidence)
        if not scores:
            raise UndefinedMetricError(f"{self.name} cannot be known: no class has {MIN_GROUP} images.")
        return min(scores, key=lambda score: score.value)

    def compute_all(self, evidence: Evidence) -> list[Score]:
        """Return the score of every class that has enough images."""
        labels, answers = evidence.labels_of(self.condition), self.answers(evidence)
        classes = [int(label) for label in np.unique(np.concatenate([evidence.labels, labels]))]
        return [self.of_class(answers, labels == k, k) for k in classes if self.count(labels, k) >= MIN_GROUP]

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return the classes that have too few images, those too that have none with the artifact."""
        here = labels if self.condition == "clean" or labels_biased is None else labels_biased
        counts = {int(k): self.count(here, int(k)) for k in np.unique(np.concatenate([labels, here]))}
        return [
            Unknown(self.name, n, f"at least {MIN_GROUP} images are needed, and there are {n}", class_group(k))
            for k, n in counts.items()
            if n < MIN_GROUP
        ]


class Sensitivity(ClassMetric):
    """Recall: share of a class's images that the model calls by it."""

    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Count the hits among the class's images."""
        return self.proportion(answers[is_inside] == label, group=class_group(label))

    def count(self, labels: Integers, label: int) -> int:
        """Count the class's images."""
        return int(np.sum(labels == label))


class SensitivityClean(Sensitivity, name="sensitivity_clean"):
    """Sensitivity on the images as they are."""

    condition = "clean"
    label = "Sensitivity, clean"
    description = "Share of a class's images without the artifact that are called by it."


class SensitivityBiased(Sensitivity, name="sensitivity_biased"):
    """Sensitivity on images with the artifact."""

    condition = "biased"
    label = "Sensitivity, biased"
    description = "Share of a class's images with the artifact that are called by it."


class Specificity(ClassMetric):
    """Share of the other classes' images that the model does not call by the class.

    An image without prediction is no such success: a broken model must not look careful.
    """

    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Count the answers that are another class, among the images of other classes."""
        others = answers[~is_inside]
        return self.proportion((others != label) & (others != NO_PREDICTION), group=class_group(label))

    def count(self, labels: Integers, label: int) -> int:
        """Count the images of other classes."""
        return int(np.sum(labels != label))


class SpecificityClean(Specificity, name="specificity_clean"):
    """Specificity on the images as they are."""

    condition = "clean"
    label = "Specificity, clean"
    description = "Share of the other classes' images without the artifact that are not called by the class."


class SpecificityBiased(Specificity, name="specificity_biased"):
    """Specificity on images with the artifact."""

    condition = "biased"
    label = "Specificity, biased"
    description = "Share of the other classes' images with the artifact that are not called by the class."


class AUROCClass(ClassMetric):
    """Area under the ROC curve of one class against the rest, with DeLong's standard error."""

    def answers(self, evidence: Evidence) -> NDArray[Any]:
        """Return the log-odds of every class."""
        return ordered_odds(self.name, evidence.logits(self.condition))

    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Rank the images by the class's log-odds."""
        area, influence = area_under(answers[:, label], is_inside)
        return self.score(area, np.sqrt(np.sum(influence**2)), influence.size, group=class_group(label))

    def count(self, labels: Integers, label: int) -> int:
        """Count the smaller of the two sides, on which the error depends most."""
        inside = int(np.sum(labels == label))
        return min(inside, len(labels) - inside)


class AUROCClassClean(AUROCClass, name="auroc_class_clean"):
    """A class's AUROC on the images as they are."""

    condition = "clean"
    label = "AUROC of a class, clean"
    description = "Area under the ROC curve of a class against the rest, on images without the artifact."


class AUROCClassBiased(AUROCClass, name="auroc_class_biased"):
    """A class's AUROC on images with the artifact."""

    condition = "biased"
    label = "AUROC of a class, biased"
    description = "Area under the ROC curve of a class against the rest, on images with the artifact."
