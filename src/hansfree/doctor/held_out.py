"""What the direction does to samples that it was not fitted on: scores, AUC, and samples that look wrongly marked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hansfree.cavs.class_means import FloatArray
from hansfree.doctor.refits import Bits, Refit
from hansfree.placements import share_below

ODDS = 100.0  # how much likelier a mark's score must be in the other class
LEAST_SEPARATION = (
    1.5  # standard deviations between the medians; below, scores cannot tell a wrong bit from a right one
)


@dataclass(frozen=True)
class HeldOut:
    """Held-out scores in standard deviations from the border, positive towards the artifact, and their AUC.

    ``separation`` is the way between the medians of the two classes. Medians and the median deviation, so that
    wrongly marked samples do not move the yardstick that finds them.
    """

    scores: FloatArray
    auc: float
    stderr: float
    separation: float

    @property
    def tells_wrong_marks(self) -> bool:
        """Whether the classes lie so far apart that a sample on the wrong side means something."""
        return self.separation >= LEAST_SEPARATION

    def odds(self, has_artifact: Bits) -> FloatArray:
        """Return for each sample how much likelier its score is in the other class (normal curves of equal width)."""
        past_border = np.where(has_artifact, -self.scores, self.scores)
        # Far scores would overflow; beyond e**50 odds say nothing more.
        odds: FloatArray = np.exp(np.clip(self.separation * past_border, -50.0, 50.0))
        return odds


def held_out_scores(refit: Refit, X: FloatArray, bits: Bits, fold_of: NDArray[np.int64]) -> FloatArray:
    """Return each sample's coordinate along the direction of the other folds, (repeats, samples).

    Args:
        refit: The CAV.
        X: Centred activations.
        bits: (repeats, samples).
        fold_of: (repeats, samples).
    """
    folds = np.arange(fold_of.max() + 1)
    is_held_out = fold_of[:, None, :] == folds[:, None]  # (repeats, folds, samples)
    training = (~is_held_out).astype(np.int64).reshape(-1, len(X))
    directions = refit(np.repeat(bits, len(folds), axis=0), training).reshape(*is_held_out.shape[:2], -1)
    every_fold = directions @ X.T
    scores: FloatArray = np.take_along_axis(every_fold, fold_of[:, None, :], axis=1)[:, 0]
    return scores


def fold_auc(scores: FloatArray, has_artifact: Bits, fold_of: NDArray[np.int64]) -> tuple[float, float]:
    """Return the AUC within folds and DeLong's standard error.

    Only scores along the same direction are compared: pooled over folds, an artifact without effect scores below one
    half.
    """
    placements = np.empty(len(scores))
    for fold in np.unique(fold_of):
        rows = np.flatnonzero(fold_of == fold)
        placements[rows] = _placements(scores[rows], has_artifact[rows])
    above_clean, below_artifact = placements[has_artifact], placements[~has_artifact]
    variance = above_clean.var(ddof=1) / len(above_clean) + below_artifact.var(ddof=1) / len(below_artifact)
    return float(above_clean.mean()), float(np.sqrt(variance))


def auc(scores: FloatArray, has_artifact: Bits) -> float:
    """Return the share of pairs in which the artifact image scores higher, ties by half."""
    return float(_placements(scores, has_artifact)[has_artifact].mean())


def in_deviations(scores: FloatArray, has_artifact: Bits) -> tuple[FloatArray, float]:
    """Return the scores in standard deviations from the border between the medians, and the medians' distance."""
    clean, artifact = scores[~has_artifact], scores[has_artifact]
    low, high = np.median(clean), np.median(artifact)
    # 1.4826 makes the median deviation of a normal sample its standard deviation; both classes count alike.
    width = 1.4826 * np.sqrt((np.median(abs(clean - low)) ** 2 + np.median(abs(artifact - high)) ** 2) / 2)
    if width == 0:  # more than half of each class has one and the same score
        width = float(np.sqrt((clean.var() + artifact.var()) / 2)) or float(np.ptp(scores)) or 1.0
    return (scores - (low + high) / 2) / width, float((high - low) / width)


def _placements(scores: FloatArray, has_artifact: Bits) -> FloatArray:
    """Return for each artifact image the share of clean ones below it, for each clean one that of artifacts above."""
    placements = np.empty(len(scores))
    placements[has_artifact] = share_below(scores[has_artifact], scores[~has_artifact])
    placements[~has_artifact] = 1 - share_below(scores[~has_artifact], scores[has_artifact])
    return placements
