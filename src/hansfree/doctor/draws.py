"""Which samples a repeat sees: bootstrap, disjoint draws, folds; always by class, from a given generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hansfree.doctor.refits import Bits, Counts


def bootstrap_draw(has_artifact: Bits, rng: np.random.Generator) -> Counts:
    """Return how often each sample is drawn, (samples,): as many of each class as there are, with repetition."""
    counts = np.zeros(len(has_artifact), dtype=np.int64)
    for members in _classes(has_artifact):
        counts[members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)))
    return counts


def disjoint_draws(has_artifact: Bits, n_artifact: int, rng: np.random.Generator) -> Counts:
    """Return two draws (2, samples) that share no sample, each with ``n_artifact`` artifact images.

    Clean images are drawn in their own proportion, so that all noise falls with the same root of ``n_artifact``.
    """
    clean, artifact = _classes(has_artifact)
    n_clean = min(max(round(n_artifact * len(clean) / len(artifact)), 1), len(clean) // 2)
    counts = np.zeros((2, len(has_artifact)), dtype=np.int64)
    for members, n in ((artifact, n_artifact), (clean, n_clean)):
        shuffled = rng.permutation(members)
        counts[0, shuffled[:n]] = 1
        counts[1, shuffled[n : 2 * n]] = 1
    return counts


def assign_folds(has_artifact: Bits, folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the fold of each sample, (samples,); each class is spread evenly over the folds."""
    fold_of = np.empty(len(has_artifact), dtype=np.int64)
    for members in _classes(has_artifact):
        fold_of[rng.permutation(members)] = np.arange(len(members)) % folds
    return fold_of


def _classes(has_artifact: Bits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the clean and of the artifact images."""
    return np.flatnonzero(~has_artifact), np.flatnonzero(has_artifact)
