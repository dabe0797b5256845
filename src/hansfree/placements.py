"""Where a score stands among others: what every AUC and its standard error are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def share_below(scores: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """Return the share of ``others`` below each score, ties by half; much quicker than ranks of all together.

    >>> share_below(np.array([0.0, 2.0, 9.0]), np.array([1.0, 2.0])).tolist()
    [0.0, 0.75, 1.0]
    """
    ordered = np.sort(others)
    twice = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(twice / (2 * len(others)), dtype=np.float64)
