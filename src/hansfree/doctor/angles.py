"""What cosines between repeated fits say about the way to the true direction.

Let the artifact move the mean by a vector of length ``size`` and let the noise of a fitted difference have the mean
square length ``v``. In many channels noise is at right angles to everything else, so that

    two fits on disjoint samples   r = size² / (size² + v)           (the noise of two fits is independent)
    a fit and the truth            cos² = size² / (size² + v) = r    (the truth has none)
    twice as many samples          v / 2, hence cos² = 2 r / (1 + r) (Spearman and Brown's formula)

and ``tan² = v / size²`` falls as one over the number of samples: the angle, where it is small, as one over its root.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hansfree.cavs.class_means import FloatArray

TARGET = 10.0  # degrees; see THRESHOLDS["expected_error"]


def to_degrees(cosines: ArrayLike) -> FloatArray:
    """Return the angle of each cosine; rounding may have carried a cosine past one."""
    degrees: FloatArray = np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0)))
    return degrees


def angle_to_truth(between: ArrayLike) -> FloatArray:
    """Return the expected angle to the true direction of fits whose cosine with their like is ``between``."""
    return to_degrees(np.sqrt(np.clip(between, 0.0, 1.0)))


def of_both_halves(between: ArrayLike) -> FloatArray:
    """Return the cosine that fits on all samples would have with their like, from that of fits on halves."""
    cosines = np.clip(np.asarray(between, dtype=np.float64), 0.0, 1.0)
    doubled: FloatArray = 2 * cosines / (1 + cosines)
    return doubled


def images_for(target: float, *, fewer: int, more: int, angle: float) -> float | None:
    """Return how many images of the rarer kind would bring the angle from ``angle`` to ``target``, None if none can.

    ``v`` is in proportion to ``1 / fewer + 1 / more``: only the rarer kind has to grow, until it is the other's equal;
    beyond that, both.

    Args:
        target: degrees.
        fewer: images behind ``angle``, with or without the artifact, whichever are fewer.
        more: the others.
        angle: degrees; at 90 nothing is known that could be extrapolated.
    """
    if angle >= 89.0:
        return None
    factor = np.tan(np.radians(angle)) ** 2 / np.tan(np.radians(target)) ** 2
    together = (1 / fewer + 1 / more) / factor
    return float(2 / together if together < 2 / more else 1 / (together - 1 / more))
