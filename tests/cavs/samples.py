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


def gaussian(
    n_artifact: int, n_clean: int, channels: int, *, size: float, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Return unit noise with the artifact ``size`` along a random direction, its bits, and that direction."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=channels)
    truth /= np.linalg.norm(truth)
    has_artifact = np.arange(n_artifact + n_clean) < n_artifact
    X = 3.0 + rng.normal(size=(len(has_artifact), channels)) + size * np.outer(has_artifact, truth)
    order = rng.permutation(len(X))
    return X[order], has_artifact[order], truth


def size_for(angle: float, n_artifact: int, n_clean: int, channels: int) -> float:
    """Return the size at which the difference of means lies ``angle`` degrees from the truth: tan² = noise / size²."""
    return float(np.sqrt(channels * (1 / n_artifact + 1 / n_clean)) / np.tan(np.radians(angle)))
