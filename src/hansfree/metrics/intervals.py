"""95 % intervals over images, by the bootstrap: what would come out if other images of the same kind had been drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hansfree.errors import DataError
from hansfree.metrics.evidence import Floats

Interval = tuple[float, float]

LEVEL = 0.95
RESAMPLES = 2000
_Z_SQUARED = 1.959964**2  # of the normal distribution at that level
_TAILS = (100 * (1 - LEVEL) / 2, 100 * (1 + LEVEL) / 2)


def share_interval(hits: ArrayLike, labels: ArrayLike | None = None, *, seed: int) -> Interval:
    """Return the interval of a share of images, such as the accuracy.

    Args:
        labels: Makes it the mean of the shares in each class (balanced accuracy); images are redrawn within classes.
    """
    is_hit = _booleans(hits)
    return _bootstrap(_count([is_hit, ~is_hit], labels), np.array([1.0, 0.0]), seed)


def difference_interval(
    hits_a: ArrayLike, hits_b: ArrayLike, labels: ArrayLike | None = None, *, seed: int
) -> Interval:
    """Return the interval of the share of a minus that of b on the same images; each image is redrawn with both.

    Args:
        labels: Makes it the mean of the differences in each class.
    """
    a, b = _booleans(hits_a), _booleans(hits_b)
    if a.shape != b.shape:
        raise DataError(f"A paired interval needs the same images twice; given shapes {a.shape} and {b.shape}.")
    return _bootstrap(_count([a & ~b, b & ~a, a == b], labels), np.array([1.0, -1.0, 0.0]), seed)


def _bootstrap(counts: np.ndarray, values: Floats, seed: int) -> Interval:
    """Return the percentile interval of the mean over classes of their mean values.

    Redrawing the images of a class is drawing its counts anew, which is far quicker than drawing images. Where all
    images of a class came out alike, redrawing shows no spread at all; that is no certainty, and the interval is
    widened by what Wilson's allows other outcomes there: z^2 / (n + z^2), about four images in n. With a single class
    the result is Wilson's interval.

    Args:
        counts: Images by class and outcome, ``(classes, outcomes)``.
        values: What an image of each outcome counts.
    """
    n = counts.sum(axis=1)
    means = counts @ values / n
    drawn = np.random.default_rng(seed).multinomial(n, counts / n[:, None], size=(RESAMPLES, len(n)))
    low, high = np.percentile((drawn @ values / n).mean(axis=1), _TAILS)
    middle = means.mean()
    unseen = np.where(counts.max(axis=1) == n, _Z_SQUARED / (n + _Z_SQUARED), 0.0)
    below, above = (np.linalg.norm(unseen * (end - means)) / len(n) for end in (values.min(), values.max()))
    return float(middle - np.hypot(middle - low, below)), float(middle + np.hypot(high - middle, above))


def _count(outcomes: list[np.ndarray], labels: ArrayLike | None) -> np.ndarray:
    """Count the images of each class by outcome; without labels all are one class."""
    size = outcomes[0].shape
    of = np.zeros(size, dtype=np.int64) if labels is None else np.asarray(labels)
    if of.shape != size:
        raise DataError(f"An interval of a mean over classes needs a label per image; given {of.shape} and {size}.")
    _, index = np.unique(of, return_inverse=True)
    return np.stack([np.bincount(index, weights=outcome) for outcome in outcomes], axis=1).astype(np.int64)


def _booleans(hits: ArrayLike) -> np.ndarray:
    array = np.asarray(hits, dtype=bool)
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"An interval needs one outcome per image, of at least 1 image; given shape {array.shape}.")
    return array
