"""Which samples a repeat sees: bootstrap, disjoint draws, folds; by class, or by pair, from a given generator.

Pairs are the clean images and then the same ones with the artifact: whoever sees one half of a pair sees the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hansfree.doctor.refits import Bits, Counts


def bootstrap_draw(has_artifact: Bits, rng: np.random.Generator, *, paired: bool = False) -> Counts:
    """Return how often each sample is drawn, (samples,): as many of each class as there are, with repetition."""
    counts = np.zeros(len(has_artifact), dtype=np.int64)
    for members in _drawn(has_artifact, paired):
        counts[members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)))
    return _with_twins(counts) if paired else counts


def disjoint_draws(has_artifact: Bits, n_artifact: int, rng: np.random.Generator, *, paired: bool = False) -> Counts:
    """Return two draws (2, samples) that share no sample, each with ``n_artifact`` artifact images.

    Clean images are drawn in their own proportion, so that all noise falls with the same root of ``n_artifact``.
    """
    counts = np.zeros((2, len(has_artifact)), dtype=np.int64)
    for members in reversed(_drawn(has_artifact, paired)):
        n = min(max(round(n_artifact * len(members) / int(has_artifact.sum())), 1), len(members) // 2)
        shuffled = rng.permutation(members)
        counts[0, shuffled[:n]] = 1
        counts[1, shuffled[n : 2 * n]] = 1
    return _with_twins(counts) if paired else counts


def assign_folds(
    has_artifact: Bits, folds: int, rng: np.random.Generator, *, paired: bool = False
) -> NDArray[np.int64]:
    """Return the fold of each sample, (samples,); each class is spread evenly over the folds."""
    fold_of = np.empty(len(has_artifact), dtype=np.int64)
    for members in _drawn(has_artifact, paired):
        fold_of[rng.permutation(members)] = np.arange(len(members)) % folds
    return _with_twins(fold_of) if paired else fold_of


def shuffle_bits(has_artifact: Bits, rng: np.random.Generator, *, paired: bool = False) -> Bits:
    """Return bits that mean nothing, as many of each; of pairs it is drawn which half has the artifact."""
    if not paired:
        return rng.permutation(has_artifact)
    is_swapped = rng.random(len(has_artifact) // 2) < 0.5
    shuffled: Bits = has_artifact ^ np.tile(is_swapped, 2)
    return shuffled


def _drawn(has_artifact: Bits, paired: bool) -> tuple[NDArray[np.int64], ...]:
    """Return the rows that are drawn, kind by kind: clean and artifact images, or the first halves of the pairs."""
    if paired:
        return (np.arange(len(has_artifact) // 2),)
    return np.flatnonzero(~has_artifact), np.flatnonzero(has_artifact)


def _with_twins(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the second halves of the pairs what the first ones have, along the last axis."""
    return np.tile(numbers[..., : numbers.shape[-1] // 2], 2)
