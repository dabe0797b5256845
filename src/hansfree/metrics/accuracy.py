"""Correctness of predictions: accuracy, balanced accuracy, AUROC, worst group, and the scores of each class."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from hansfree._internal.statistics import Floats, Integers, auc
from hansfree.errors import UndefinedMetricError
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
)

WHICH_IMAGES: dict[Condition, str] = {"clean": "without", "biased": "with"}  # the artifact
MetricT = TypeVar("MetricT", bound="ConditionMetric")


def by_condition(base: type[MetricT], name: str) -> tuple[type[MetricT], type[MetricT]]:
    """Register ``name_clean``, the metric of the images without the artifact, and ``name_biased``, of those with it."""

    def register(condition: Condition) -> type[MetricT]:
        facts = {"__module__": __name__, "__doc__": base.template.format(WHICH_IMAGES[condition])}
        title, make = f"{base.__name__}{condition.title()}", type(base)
        return make(title, (base,), facts, name=f"{name}_{condition}", condition=condition)  # type: ignore

    return register("clean"), register("biased")


class ConditionMetric(Metric):
    """A metric of the images without, or of those with the artifact; `by_condition` registers both."""

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
        """Return itself where fewer than two classes are large enough for a mean over classes."""
        counts = np.sort(np.unique(labels, return_counts=True)[1])
        second = int(counts[-2]) if counts.size > 1 else 0
        if second >= MIN_GROUP:
            return []
        needed = f"two classes with at least {MIN_GROUP} images with the artifact are needed"
        return [NotAvailable(self.name, second, f"{needed}, and the second largest class has {second}")]


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
        return self.too_few_images(len(labels))


AccuracyClean, AccuracyBiased = by_condition(Accuracy, "accuracy")


class BalancedAccuracy(ConditionMetric):
    """Mean recall over the classes present, so that always answering the most frequent class does not pay.

    Where images with the artifact are others than the clean ones, classes of fewer than `MIN_GROUP` do not count.
    """

    title = "Balanced accuracy"
    template = "Mean recall over the classes on images {} the artifact."

    def compute(self, evidence: Evidence) -> Score:
        """Average the recalls; their errors are independent, as no image belongs to two classes."""
        self.check_available(evidence)
        is_own = self.condition == "biased" and not evidence.is_paired
        correct, labels = evidence.is_correct(self.condition), evidence.labels_of(self.condition)
        return self.of(correct, labels, least=MIN_GROUP if is_own else 0)

    def of(self, correct: NDArray[np.bool_], labels: Integers, *, least: int = 0) -> Score:
        """Return the score of images that are right or wrong.

        Args:
            least: Images that a class needs to count. A choice between models may take every class: what is rare
                there is what the shortcut gets wrong.
        """
        _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        recalls = np.bincount(index, weights=correct) / counts
        recalls, counts = recalls[counts >= least], counts[counts >= least]
        if counts.size == 0:
            raise UndefinedMetricError(f"{self.name} needs at least 1 image, and none is given.")
        variance = np.sum(recalls * (1 - recalls) / counts) / counts.size**2
        return self.score(recalls.mean(), np.sqrt(variance), counts.sum())


BalancedAccuracyClean, BalancedAccuracyBiased = by_condition(BalancedAccuracy, "balanced_accuracy")


def accuracies(
    clean: Integers, biased: Integers, labels: Integers, labels_biased: Integers | None = None
) -> list[Score]:
    """Return plain and balanced accuracies of predictions without and with the artifact, where images are enough.

    Args:
        labels_biased: None where the artifact was inserted into the clean images.
    """
    of_biased, least = (labels, 0) if labels_biased is None else (labels_biased, MIN_GROUP)
    right = clean == labels
    scores = [AccuracyClean().proportion(right), BalancedAccuracyClean().of(right, labels)]
    plain, balanced, right = AccuracyBiased(), BalancedAccuracyBiased(), biased == of_biased
    if not plain.unavailable(labels, labels_biased):
        scores.append(plain.proportion(right))
    if not balanced.unavailable(labels, labels_biased):
        scores.append(balanced.of(right, of_biased, least=least))
    return scores


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


by_condition(AUROC, "auroc")


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


by_condition(Sensitivity, "sensitivity")


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


by_condition(Specificity, "specificity")


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


by_condition(AUROCClass, "auroc_class")


def majority_rate(labels: Integers) -> float:
    """Return the accuracy of always answering the most frequent class: what a useful model must beat."""
    return float(np.bincount(labels).max() / len(labels))


def chance_level(labels: Integers) -> float:
    """Return the balanced accuracy of any answer that is always the same: one of the classes present is all right."""
    return 1 / len(np.unique(labels))
