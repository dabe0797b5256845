"""Small activations with a known artifact, for the tests of this folder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def activations(
    n: int = 60, channels: int = 6, *, size: float = 2.0, seed: int = 0, offset: float = 3.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return noise around ``offset``, with the artifact (one sample in three) along the first two channels."""
    rng = np.random.default_rng(seed)
    has_artifact = np.arange(n) % 3 == 0
    direction = np.zeros(channels)
    direction[:2] = size
    return offset + rng.normal(size=(n, channels)) + np.outer(has_artifact, direction), has_artifact
