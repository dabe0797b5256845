"""Statistics by hand where no library has them: AUC with DeLong's error, intervals of shares, paired tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from hansfree.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Interval = tuple[float, float]
LEVEL = 0.95  # of all intervals, and of the tests beside them
STDERRS = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard errors to each side, for intervals built from those
RESAMPLES = 2000
TAILS = (100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2)  # percentiles of resamples that bound an interval
_BISECTIONS = 50  # of an interval of length 2 at most: to the last digits of a float


class AUC(NamedTuple):
    """An area under the ROC curve, and the influence of each sample on it."""

    value: float
    influence: Floats

    @property
    def stderr(self) -> float:
        """DeLong's standard error; a side of a single sample shows no spread and adds none."""
        return float(np.sqrt(np.sum(self.influence**2)))


def auc(scores: NDArray[Any], is_positive: NDArray[np.bool_], *, groups: NDArray[Any] | None = None) -> AUC:
    """Return the share of (positive, negative) pairs in which the positive scores higher, ties by half.

    Args:
        groups: Compare only samples of the same group, such as those scored by the same fold's classifier.
    """
    placements = np.empty(len(scores))
    for rows in [slice(None)] if groups is None else [np.flatnonzero(groups == group) for group in np.unique(groups)]:
        placements[rows] = _placements(scores[rows], is_positive[rows])
    influence = np.empty(len(scores))
    for side in (is_positive, ~is_positive):
        n = int(side.sum())
        influence[side] = (placements[side] - placements[side].mean()) / math.sqrt(n * max(n - 1, 1))
    return AUC(float(placements[is_positive].mean()), influence)


def _placements(scores: NDArray[Any], is_positive: NDArray[np.bool_]) -> Floats:
    """Return the share of negatives below each positive, and of positives above each negative."""
    positives, negatives = scores[is_positive], scores[~is_positive]
    placements = np.empty(len(scores))
    placements[is_positive] = share_below(positives, negatives)
    placements[~is_positive] = 1 - share_below(negatives, positives)
    return placements


def share_below(scores: NDArray[Any], others: NDArray[Any]) -> Floats:
    """Return the share of ``others`` below each score, ties by half; much faster than ranks of all together."""
    ordered = np.sort(others)
    twice = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(twice / (2 * len(others)), dtype=np.float64)


def binomial_interval(k: int, n: int, *, method: Literal["wilson", "exact"] = "wilson") -> Interval:
    """Return the interval of a share of which ``k`` of ``n`` were seen; ``exact`` is Clopper and Pearson's."""
    low, high = binomtest(k, n).proportion_ci(LEVEL, method)
    return float(low), float(high)


def share_interval(hits: ArrayLike) -> Interval:
    """Return Wilson's score interval of a share of images, such as the accuracy."""
    is_hit = _booleans(hits)
    return binomial_interval(int(is_hit.sum()), is_hit.size)


def balanced_interval(hits: ArrayLike, labels: ArrayLike, *, seed: int) -> Interval:
    """Return the interval of the mean of the shares in each class (balanced accuracy)."""
    is_hit = _booleans(hits)
    counts = _count([is_hit, ~is_hit], labels)
    each = [binomial_interval(int(right), int(right + wrong)) for right, wrong in counts]
    return _mean_interval(counts, np.array([1.0, 0.0]), each, seed)


def difference_interval(hits_a: ArrayLike, hits_b: ArrayLike) -> Interval:
    """Return Tango's score interval of the share of a minus that of b on the same images."""
    a, b = _same_images(hits_a, hits_b)
    return _tango(int(np.sum(a & ~b)), int(np.sum(b & ~a)), a.size)


def balanced_difference_interval(hits_a: ArrayLike, hits_b: ArrayLike, labels: ArrayLike, *, seed: int) -> Interval:
    """Return the interval of the mean over classes of their paired differences; each image counts with both answers."""
    a, b = _same_images(hits_a, hits_b)
    counts = _count([a & ~b, b & ~a, a == b], labels)
    each = [_tango(int(only_a), int(only_b), int(only_a + only_b + same)) for only_a, only_b, same in counts]
    return _mean_interval(counts, np.array([1.0, -1.0, 0.0]), each, seed)


def paired_difference(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[float, float]:
    """Return the accuracy of a minus that of b on the same images, and the standard error of this paired difference."""
    a, b = _same_images(correct_a, correct_b)
    only_a, only_b = np.sum(a & ~b), np.sum(b & ~a)
    difference = (only_a - only_b) / a.size
    return float(difference), float(np.sqrt(((only_a + only_b) / a.size - difference**2) / a.size))


def paired_balanced_difference(correct_a: ArrayLike, correct_b: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Return the balanced accuracy of a minus that of b on the same images, and its standard error.

    The mean over the classes present of their paired differences, whose errors are independent.
    """
    a, b = _same_images(correct_a, correct_b)
    counts = _count([a & ~b, b & ~a, a == b], labels)
    n, differ = counts.sum(axis=1), counts[:, 0] + counts[:, 1]
    each = (counts[:, 0] - counts[:, 1]) / n
    return float(each.mean()), float(np.sqrt(np.sum((differ / n - each**2) / n)) / len(n))


def mcnemar(correct_a: ArrayLike, correct_b: ArrayLike) -> float:
    """Return the p-value of McNemar's exact test, two-sided: are a and b right equally often on the same images?

    Of the images on which exactly one of the two is right, each would then be a's or b's with probability 1/2.
    """
    a, b = _same_images(correct_a, correct_b)
    only_a, only_b = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    if only_a + only_b == 0:
        return 1.0
    return float(binomtest(only_a, only_a + only_b).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-adjusted p-values (1979), in the same order."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(p) for p in corrected]


def _tango(only_a: int, only_b: int, n: int) -> Interval:
    """Return Tango's score interval (1998) of a difference, given on how many images one alone is right."""
    return _tango_low(only_a, only_b, n), -_tango_low(only_b, only_a, n)


def _tango_low(only_a: int, only_b: int, n: int) -> float:
    """Return the lower end by bisection: below it, the score test rejects every difference."""
    low, high = -1.0, (only_a - only_b) / n
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        # the likeliest share of images that only b gets right, if the difference were this one
        linear = (2 * n - only_a + only_b) * middle - only_a - only_b
        root = math.sqrt(max(0.0, linear**2 + 8 * n * only_b * middle * (1 - middle)))
        share = (root - linear) / (4 * n)
        variance = n * (2 * share + middle * (1 - middle))
        if only_a - only_b - n * middle > STDERRS * math.sqrt(max(0.0, variance)):
            low = middle
        else:
            high = middle
    return high


def _mean_interval(counts: np.ndarray, values: Floats, each: Sequence[Interval], seed: int) -> Interval:
    """Return the interval of the mean over classes of their mean values.

    A percentile bootstrap within classes, on the counts ``(classes, outcomes)`` of images. It is never narrower than
    the score intervals of the classes (``each``) make it, whose distances from the means add like errors (Newcombe;
    Zou and Donner, 2008): where few images differ in outcome, resampling shows too little spread.

    Args:
        values: What an image of each outcome counts.
    """
    n = counts.sum(axis=1)
    means = counts @ values / n
    drawn = np.random.default_rng(seed).multinomial(n, counts / n[:, None], size=(RESAMPLES, len(n)))
    low, high = np.percentile((drawn @ values / n).mean(axis=1), TAILS)
    below, above = (np.linalg.norm(ends - means) / len(n) for ends in np.array(each).T)
    return float(min(low, means.mean() - below)), float(max(high, means.mean() + above))


def _count(outcomes: list[np.ndarray], labels: ArrayLike) -> np.ndarray:
    """Count the images of each class by outcome."""
    of, size = np.asarray(labels), outcomes[0].shape
    if of.shape != size:
        raise DataError(f"A mean over classes needs a label per image; given {of.shape} and {size}.")
    _, index = np.unique(of, return_inverse=True)
    return np.stack([np.bincount(index, weights=outcome) for outcome in outcomes], axis=1).astype(np.int64)


def _booleans(hits: ArrayLike) -> np.ndarray:
    array = np.asarray(hits, dtype=bool)
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"An interval needs one outcome per image, of at least 1 image; given shape {array.shape}.")
    return array


def _same_images(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(correct_a, dtype=bool), np.asarray(correct_b, dtype=bool)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise DataError(f"A paired comparison needs the same images twice; given shapes {a.shape} and {b.shape}.")
    return a, b
