"""How well the model ranks images by class, whatever the threshold."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.base import Metric, Score, Unknown, few_classes, large_classes
from hansfree.metrics.evidence import Condition, Evidence, Floats, Integers
from hansfree.placements import share_below


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
