"""Two models on the same images: which is better, and what one of them no longer says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from hansfree.errors import DataError
from hansfree.metrics.evidence import NO_PREDICTION, Integers


def paired_difference(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[float, float]:
    """Return the accuracy of a minus that of b on the same images, and its standard error.

    Only images on which exactly one of the two is right tell them apart (McNemar), so for similar models the error is
    far below that of two separate accuracies.
    """
    a, b = _same_images(correct_a, correct_b)
    only_a, only_b = np.sum(a & ~b), np.sum(b & ~a)
    difference = (only_a - only_b) / a.size
    return float(difference), float(np.sqrt(((only_a + only_b) / a.size - difference**2) / a.size))


def paired_balanced_difference(correct_a: ArrayLike, correct_b: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Return the balanced accuracy of a minus that of b on the same images, and its standard error.

    The mean over the classes present of their paired differences; the errors of these are independent, as no image
    belongs to two classes.
    """
    a, b = _same_images(correct_a, correct_b)
    of = np.asarray(labels)
    if of.shape != a.shape:
        raise DataError(f"A balanced comparison needs a label per image; given shapes {of.shape} and {a.shape}.")
    classes = np.unique(of)
    each = np.array([paired_difference(a[of == label], b[of == label]) for label in classes])
    return float(each[:, 0].mean()), float(np.sqrt(np.square(each[:, 1]).sum()) / classes.size)


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
    """Return p-values corrected for their number (Holm, 1979), in the same order.

    The smallest counts as many times as there are tests, the next one time less, and none falls below a smaller one:
    that any of them is below 0.05 by chance alone is then as rare as it is of a single test.
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(p) for p in corrected]


def write_p(p: float) -> str:
    """Write a p-value with two or three digits; what is tiny is told as such."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def lost_classes(predictions_before: Integers, predictions_after: Integers, n_classes: int) -> tuple[int, ...]:
    """Return the classes that were predicted at least once before and never after.

    A head that lost a class can still score well on unbalanced data; it must never be chosen.
    """
    for predictions in (predictions_before, predictions_after):
        if not np.isin(predictions, [NO_PREDICTION, *range(n_classes)]).all():
            raise DataError(f"Predictions must be classes 0 to {n_classes - 1}, or {NO_PREDICTION} for none.")
    lost = np.setdiff1d(predictions_before, predictions_after)
    return tuple(int(label) for label in lost if label != NO_PREDICTION)


def _same_images(correct_a: ArrayLike, correct_b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(correct_a, dtype=bool), np.asarray(correct_b, dtype=bool)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise DataError(f"A paired comparison needs the same images twice; given shapes {a.shape} and {b.shape}.")
    return a, b
