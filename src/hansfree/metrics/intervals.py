"""95 % intervals over images: what shares would still fit the answers that were seen.

Shares of images have score intervals, which stay honest where nearly all images came out alike: Wilson's for one model,
Tango's for two models on the same images. Means over classes have a bootstrap, never narrower than the score intervals
of their classes allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from hansfree.errors import DataError
from hansfree.metrics.base import Floats

Interval = tuple[float, float]

LEVEL = 0.95  # of all intervals, and of the tests beside them
STDERRS = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard errors to each side, where an interval is made of those
RESAMPLES = 2000
TAILS = (100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2)  # the ends of an interval among resamples, in per cent
_HALVINGS = 50  # of an interval of length 2 at most: to the last digits of a float


def share_interval(hits: ArrayLike) -> Interval:
    """Return Wilson's score interval of a share of images, such as the accuracy."""
    is_hit = _booleans(hits)
    return _wilson(int(is_hit.sum()), is_hit.size)


def balanced_interval(hits: ArrayLike, labels: ArrayLike, *, seed: int) -> Interval:
    """Return the interval of the mean of the shares in each class (balanced accuracy)."""
    is_hit = _booleans(hits)
    counts = _count([is_hit, ~is_hit], labels)
    each = [_wilson(int(right), int(right + wrong)) for right, wrong in counts]
    return _mean_interval(counts, np.array([1.0, 0.0]), each, seed)


def difference_interval(hits_a: ArrayLike, hits_b: ArrayLike) -> Interval:
    """Return Tango's score interval of the share of a minus that of b on the same images."""
    a, b = _pairs(hits_a, hits_b)
    return _tango(int(np.sum(a & ~b)), int(np.sum(b & ~a)), a.size)


def balanced_difference_interval(hits_a: ArrayLike, hits_b: ArrayLike, labels: ArrayLike, *, seed: int) -> Interval:
    """Return the interval of the mean over classes of their paired differences; each image counts with both answers."""
    a, b = _pairs(hits_a, hits_b)
    counts = _count([a & ~b, b & ~a, a == b], labels)
    each = [_tango(int(only_a), int(only_b), int(only_a + only_b + same)) for only_a, only_b, same in counts]
    return _mean_interval(counts, np.array([1.0, -1.0, 0.0]), each, seed)


def _wilson(k: int, n: int) -> Interval:
    """Return all shares that a score test would not refuse, given ``k`` of ``n`` (Wilson, 1927)."""
    z, share = STDERRS, k / n
    middle, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    scale = 1 + z**2 / n
    # no image at all, or all of them, leave no room on that side: rounding must not make any
    return 0.0 if k == 0 else (middle - half) / scale, 1.0 if k == n else (middle + half) / scale


def _tango(only_a: int, only_b: int, n: int) -> Interval:
    """Return all differences that a score test would not refuse, given on how many images one alone is right.

    Tango (1998). At a difference of zero the test is McNemar's, so interval and test agree but for the exact test's
    caution where few images differ.
    """
    return _tango_low(only_a, only_b, n), -_tango_low(only_b, only_a, n)


def _tango_low(only_a: int, only_b: int, n: int) -> float:
    """Return the lower end by halving: below it, every difference is refused."""
    low, high = -1.0, (only_a - only_b) / n
    for _ in range(_HALVINGS):
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

    A percentile bootstrap within classes: redrawing the images of a class is drawing its counts anew. Where few images
    tell the outcomes apart, redrawing shows too little spread, or none; the interval is then as wide as the intervals
    of the classes make it, whose distances from the means add like errors (Newcombe; Zou and Donner, 2008).

    Args:
        counts: Images by class and outcome, ``(classes, outcomes)``.
        values: What an image of each outcome counts.
        each: The score interval of every class.
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
        raise DataError(f"An interval of a mean over classes needs a label per image; given {of.shape} and {size}.")
    _, index = np.unique(of, return_inverse=True)
    return np.stack([np.bincount(index, weights=outcome) for outcome in outcomes], axis=1).astype(np.int64)


def _pairs(hits_a: ArrayLike, hits_b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = _booleans(hits_a), _booleans(hits_b)
    if a.shape != b.shape:
        raise DataError(f"A paired interval needs the same images twice; given shapes {a.shape} and {b.shape}.")
    return a, b


def _booleans(hits: ArrayLike) -> np.ndarray:
    array = np.asarray(hits, dtype=bool)
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"An interval needs one outcome per image, of at least 1 image; given shape {array.shape}.")
    return array
