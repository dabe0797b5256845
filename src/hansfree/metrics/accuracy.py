"""Correctness of predictions: accuracy, balanced accuracy, AUROC, worst group, and the scores of each class."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from hansfree._internal.statistics import Floats, Integers, auc
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics.base import (
    MIN_GROUP,
    NO_PREDICTION,
    Condition,
    Evidence,
    Metric,
    NotAvailable,
    Score,
    large_classes,
    predict_classes,
    too_few_classes,
    too_few_images,
)

WHICH_IMAGES: dict[Condition, str] = {"clean": "without", "biased": "with"}  # the artifact


class ConditionMetric(Metric):
    """A metric of the images without, or of those with the artifact, as the class line says."""

    ideal = 1.0
    condition: ClassVar[Condition]
    title: ClassVar[str]
    template: ClassVar[str]  # of the description; {} is "without" or "with"

    def __init_subclass__(cls, *, condition: Condition | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if condition is not None:
            cls.condition, cls.label = condition, f"{cls.title}, {condition}"
            cls.description = cls.template.format(WHICH_IMAGES[condition])

    def unavailable(self, labels: Integers, labels_biased: Integers | None) -> list[NotAvailable]:
        """Return itself where the images with the artifact are others, and too few."""
        return [] if self.condition == "clean" or labels_biased is None else self.too_few(labels_biased)

    def too_few(self, labels: Integers) -> list[NotAvailable]:
        """Return itself where fewer than two classes are large enough."""
        return too_few_classes(self.name, labels)


class Accuracy(ConditionMetric):
    """Share of images whose predicted class is the label; an image without prediction is wrong."""

    title = "Accuracy"
    template = "Share of correct predictions on images {} the artifact."

    def compute(self, evidence: Evidence) -> Score:
        """Count the hits."""
        self.check_available(evidence)
        return self.proportion(evidence.is_correct(self.condition))

    def too_few(self, labels: Integers) -> list[NotAvailable]:
        """Return itself where the images are few."""
        return too_few_images(self.name, len(labels))


class AccuracyClean(Accuracy, name="accuracy_clean", condition="clean"):
    """Accuracy on images without the artifact."""


class AccuracyBiased(Accuracy, name="accuracy_biased", condition="biased"):
    """Accuracy on the same images with the artifact inserted; where it is natural, on those that have it."""


class BalancedAccuracy(ConditionMetric):
    """Mean recall over the classes present, so that always answering the most frequent class does not pay.

    Args:
        least: Images that a class needs to count where those with the artifact are others than the clean ones. A
            choice between models may take every class: what is rare there is what the shortcut gets wrong.
    """

    title = "Balanced accuracy"
    template = "Mean recall over the classes on images {} the artifact."

    def __init__(self, *, least: int = MIN_GROUP) -> None:
        self.least = least

    def compute(self, evidence: Evidence) -> Score:
        """Average the recalls; their errors are independent, as no image belongs to two classes."""
        correct, labels = evidence.is_correct(self.condition), evidence.labels_of(self.condition)
        if self.least >= MIN_GROUP:
            self.check_available(evidence)
        _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        recalls = np.bincount(index, weights=correct) / counts
        if self.condition == "biased" and not evidence.is_paired:
            recalls, counts = recalls[counts >= self.least], counts[counts >= self.least]
        if counts.size == 0:
            raise UndefinedMetricError(f"{self.name} needs at least 1 image, and none is given.")
        variance = np.sum(recalls * (1 - recalls) / counts) / counts.size**2
        return self.score(recalls.mean(), np.sqrt(variance), counts.sum())


class BalancedAccuracyClean(BalancedAccuracy, name="balanced_accuracy_clean", condition="clean"):
    """Balanced accuracy on images without the artifact."""


class BalancedAccuracyBiased(BalancedAccuracy, name="balanced_accuracy_biased", condition="biased"):
    """Balanced accuracy on images with the artifact."""


class AUROC(ConditionMetric):
    """Area under the ROC curve, one class against the rest, averaged over the classes present.

    Images are ranked by the class's log-odds: the order of the softmax probability, without its ties where that
    rounds to 1. The standard error is from each image's influence (DeLong's placements), averaged over the classes
    before squaring: one image counts in the curve of every class, so the curves are not independent.
    """

    title = "AUROC"
    template = "Area under the ROC curve, mean over classes, on images {} the artifact."

    def compute(self, evidence: Evidence) -> Score:
        """Average areas and influences over the classes."""
        self.check_available(evidence)
        labels = evidence.labels_of(self.condition)
        classes = np.unique(labels)
        if classes.size < 2:
            raise UndefinedMetricError(f"{self.name} needs two classes, the labels hold only {classes[0]}.")
        if self.condition == "biased" and not evidence.is_paired:
            classes = large_classes(labels)
        odds = ordered_odds(self.name, evidence.logits(self.condition))
        areas, influence = [], np.zeros(len(odds))
        for label in classes:
            found = auc(odds[:, label], labels == label)
            areas.append(found.value)
            influence += found.influence / classes.size
        return self.score(sum(areas) / classes.size, np.sqrt(np.sum(influence**2)), influence.size)


class AUROCClean(AUROC, name="auroc_clean", condition="clean"):
    """AUROC on images without the artifact."""


class AUROCBiased(AUROC, name="auroc_biased", condition="biased"):
    """AUROC on images with the artifact."""


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
    # Below the top p is at most 1/2; more is rounding, between huge logits that are equal in floating point.
    share = np.minimum(share, 0.5)
    share[rows, top] = 0.0
    odds = np.minimum(logits - total - np.log1p(-share), 0.0)
    odds[rows, top] = logits[rows, top] - rest
    return np.asarray(odds, dtype=np.float64)


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
        self.check_available(evidence)
        groups = []
        for condition in get_args(Condition):
            correct, labels = evidence.is_correct(condition), evidence.labels_of(condition)
            for label in large_classes(labels):
                groups.append(
                    self.proportion(correct[labels == label], group=int(label), artifact=WHICH_IMAGES[condition])
                )
        return min(groups, key=lambda score: score.value)

    def unavailable(self, labels: Integers, labels_biased: Integers | None) -> list[NotAvailable]:
        """Return itself where no group is large enough."""
        sets = (labels,) if labels_biased is None else (labels, labels_biased)
        largest = max(int(np.unique(of, return_counts=True)[1].max(initial=0)) for of in sets)
        if largest >= MIN_GROUP:
            return []
        reason = f"a class needs at least {MIN_GROUP} images; the largest has {largest}"
        return [NotAvailable(self.name, largest, reason)]


class ClassMetric(ConditionMetric):
    """One score for every class of which enough images are known; a member writes `of_class` and `count`.

    Neither inserted nor natural artifacts make a class larger, so the limit holds for both.
    """

    is_per_class = True
    rank = 1  # after the scores of all images: a row for every class

    def answers(self, evidence: Evidence) -> NDArray[Any]:
        """Return what the scores of all classes are taken from, computed once: the predicted classes."""
        return predict_classes(evidence.logits(self.condition))

    @abstractmethod
    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Return the score of one class, whose images are those inside."""

    @abstractmethod
    def count(self, labels: Integers, label: int) -> int:
        """Return over how many images the score of a class is taken: of two sides the smaller."""

    def compute(self, evidence: Evidence) -> Score:
        """Return the lowest score of a class; the first of equals."""
        scores = self.compute_all(evidence)
        if not scores:
            raise UndefinedMetricError(f"{self.name} is not available: no class has {MIN_GROUP} images.")
        return min(scores, key=lambda score: score.value)

    def compute_all(self, evidence: Evidence) -> list[Score]:
        """Return the score of every class that has enough images."""
        labels, answers = evidence.labels_of(self.condition), self.answers(evidence)
        classes = [int(label) for label in np.unique(np.concatenate([evidence.labels, labels]))]
        return [self.of_class(answers, labels == k, k) for k in classes if self.count(labels, k) >= MIN_GROUP]

    def unavailable(self, labels: Integers, labels_biased: Integers | None) -> list[NotAvailable]:
        """Return the classes that have too few images, including those without any image with the artifact."""
        here = labels if self.condition == "clean" or labels_biased is None else labels_biased
        counts = {int(k): self.count(here, int(k)) for k in np.unique(np.concatenate([labels, here]))}
        return [
            NotAvailable(self.name, n, f"at least {MIN_GROUP} images are needed, and there are {n}", k)
            for k, n in counts.items()
            if n < MIN_GROUP
        ]


class Sensitivity(ClassMetric):
    """Recall: share of a class's images that the model calls by it."""

    title = "Sensitivity"
    template = "Share of a class's images {} the artifact that are called by it."

    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Count the hits among the class's images."""
        return self.proportion(answers[is_inside] == label, group=label)

    def count(self, labels: Integers, label: int) -> int:
        """Count the class's images."""
        return int(np.sum(labels == label))


class SensitivityClean(Sensitivity, name="sensitivity_clean", condition="clean"):
    """Sensitivity on images without the artifact."""


class SensitivityBiased(Sensitivity, name="sensitivity_biased", condition="biased"):
    """Sensitivity on images with the artifact."""


class Specificity(ClassMetric):
    """Share of the other classes' images that the model does not call by the class.

    An image without prediction is no such success: a broken model must not look careful.
    """

    title = "Specificity"
    template = "Share of the other classes' images {} the artifact that are not called by the class."

    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Count the answers that are another class, among the images of other classes."""
        others = answers[~is_inside]
        return self.proportion((others != label) & (others != NO_PREDICTION), group=label)

    def count(self, labels: Integers, label: int) -> int:
        """Count the images of other classes."""
        return int(np.sum(labels != label))


class SpecificityClean(Specificity, name="specificity_clean", condition="clean"):
    """Specificity on images without the artifact."""


class SpecificityBiased(Specificity, name="specificity_biased", condition="biased"):
    """Specificity on images with the artifact."""


class AUROCClass(ClassMetric):
    """Area under the ROC curve of one class against the rest, with DeLong's standard error."""

    title = "AUROC of a class"
    template = "Area under the ROC curve of a class against the rest, on images {} the artifact."

    def answers(self, evidence: Evidence) -> NDArray[Any]:
        """Return the log-odds of every class."""
        return ordered_odds(self.name, evidence.logits(self.condition))

    def of_class(self, answers: NDArray[Any], is_inside: NDArray[np.bool_], label: int) -> Score:
        """Rank the images by the class's log-odds."""
        found = auc(answers[:, label], is_inside)
        return self.score(found.value, found.stderr, len(is_inside), group=label)

    def count(self, labels: Integers, label: int) -> int:
        """Count the smaller of the two sides, on which the error depends most."""
        inside = int(np.sum(labels == label))
        return min(inside, len(labels) - inside)


class AUROCClassClean(AUROCClass, name="auroc_class_clean", condition="clean"):
    """A class's AUROC on images without the artifact."""


class AUROCClassBiased(AUROCClass, name="auroc_class_biased", condition="biased"):
    """A class's AUROC on images with the artifact."""


def majority_rate(labels: Integers) -> float:
    """Return the accuracy of always answering the most frequent class: what a useful model must beat."""
    return float(_class_counts("majority rate", labels).max() / len(labels))


def chance_level(labels: Integers) -> float:
    """Return the balanced accuracy of any answer that is always the same: one of the classes present is all right."""
    return 1 / len(_class_counts("chance level", labels))


def _class_counts(what: str, labels: Integers) -> Integers:
    if len(labels) == 0:
        raise DataError(f"The {what} needs at least 1 label, and none is given.")
    return np.unique(labels, return_counts=True)[1]
