"""How far a CAV can be trusted: does it point where the artifact really moves the activations?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hansfree._internal.statistics import auc
from hansfree.cavs.base import CAV, FloatArray
from hansfree.errors import UndefinedMetricError


@dataclass(frozen=True, eq=False)
class CAVQuality:
    """A score of a CAV with its standard error, which is None where too few samples were given to know it."""

    value: float
    standard_error: float | None
    n: int  # samples that count


def alignment_sample(direction: ArrayLike, deltas: ArrayLike) -> CAVQuality:
    """Return the mean cosine between the direction and each sample's change: the paper's s (Eq. alignment_single).

    Args:
        direction: (channels,), of any length.
        deltas: (samples, channels), changes of the pooled activations when the artifact was inserted. Samples without
            any change are left out.

    >>> alignment_sample([1.0, 0.0], [[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]]).value
    0.5
    """
    unit, changed = _checked(direction, deltas)
    cosines = changed @ unit / np.linalg.norm(changed, axis=1)
    error = float(cosines.std(ddof=1) / np.sqrt(len(cosines))) if len(cosines) > 1 else None
    return CAVQuality(float(cosines.mean()), error, len(cosines))


def alignment_mean(direction: ArrayLike, deltas: ArrayLike) -> CAVQuality:
    """Return the cosine between the direction and the mean change: the paper's s-bar (Eq. alignment_overall).

    Arguments are those of `alignment_sample`. The standard error is the jackknife's.

    >>> round(alignment_mean([1.0, 0.0], [[2.0, 1.0], [2.0, -1.0]]).value, 3)
    1.0
    """
    unit, changed = _checked(direction, deltas)
    n = len(changed)
    total = changed.sum(axis=0)
    if not np.any(total):
        raise UndefinedMetricError(f"The mean change over {n} samples is zero, so it has no direction to agree with.")
    value = float(unit @ total / np.linalg.norm(total))
    without_one = total - changed
    lengths = np.linalg.norm(without_one, axis=1)
    if n < 2 or not np.all(lengths > 0):
        return CAVQuality(value, None, n)
    replicates = without_one @ unit / lengths
    error = float(np.sqrt((n - 1) / n * np.sum((replicates - replicates.mean()) ** 2)))
    return CAVQuality(value, error, n)


def cav_auc(cav: CAV, X: ArrayLike, y: ArrayLike) -> CAVQuality:
    """Return how well the CAV's score separates held-out samples with and without the artifact, with DeLong's error."""
    has_artifact = np.asarray(y) == cav.classes_[1]
    fewest = min(int(has_artifact.sum()), int((~has_artifact).sum()))
    if fewest == 0:
        raise UndefinedMetricError(f"AUC needs samples of both classes, but all {len(has_artifact)} are of one.")
    found = auc(cav.decision_function(X), has_artifact)
    return CAVQuality(found.value, found.stderr if fewest > 1 else None, len(has_artifact))


def _checked(direction: ArrayLike, deltas: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the unit direction, and the changes without those of zero."""
    vector, changes = np.asarray(direction, dtype=np.float64), np.asarray(deltas, dtype=np.float64)
    has_changed = np.any(changes != 0, axis=1)
    if not np.any(has_changed):
        raise UndefinedMetricError(
            f"Alignment is not defined: inserting the artifact changed none of the {len(changes)} samples."
        )
    return vector / np.linalg.norm(vector), changes[has_changed]
