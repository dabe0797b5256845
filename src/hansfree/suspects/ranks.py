"""AUC by rank sums, for many properties and groups at once, with p-values that hold for all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from hansfree.progress import Progress, silent
from hansfree.suspects.spectral import FloatArray, IntArray

LEAST = 5  # images on each side of a comparison
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Comparison:
    """AUC of every property between groups of images and all others, and its size in standard errors."""

    auc: FloatArray  # (groups, properties)
    z: FloatArray


def rank_columns(values: npt.NDArray[np.floating]) -> FloatArray:
    """Return the rank of each value in its column, from 1; equals share theirs, and an unknown one is in the middle.

    So an AUC from these ranks counts half for every pair that cannot be ordered.
    """
    n = len(values)
    ranks = np.full(values.shape, (n + 1) / 2)
    for column in range(values.shape[1]):
        known = np.isfinite(values[:, column])
        ranks[known, column] = rankdata(values[known, column]) + (n - known.sum()) / 2
    return ranks


def compare_groups(ranks: FloatArray, number: IntArray, count: int) -> Comparison:
    """Compare each of ``count`` groups with the rest; one with too few images on a side has AUC 0.5 and size 0."""
    n, properties = ranks.shape
    sizes = np.bincount(number, minlength=count).astype(np.float64)
    sums = np.zeros((count, properties))
    order = np.argsort(number, kind="stable")
    filled = np.flatnonzero(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes[filled])[:-1]]).astype(np.int64)
    sums[filled] = np.add.reduceat(ranks[order], starts, axis=0)
    usable = ((sizes >= LEAST) & (n - sizes >= LEAST))[:, None]
    pairs = np.where(usable, (sizes * (n - sizes))[:, None], 1.0)
    auc = (sums - (sizes * (sizes + 1))[:, None] / 2) / pairs
    # Of a random draw of these very ranks without putting back, ties and all.
    error = np.sqrt(ranks.var(axis=0) / (max(n - 1, 1) * pairs))
    moves = usable & (error > 0)
    return Comparison(np.where(moves, auc, 0.5), np.divide(auc - 0.5, error, out=np.zeros_like(auc), where=moves))


@dataclass(frozen=True, eq=False)
class Family:
    """Images, their ranks in all properties, and the number of the group that each belongs to."""

    ranks: FloatArray
    number: IntArray
    count: int

    def compare(self, number: IntArray | None = None) -> Comparison:
        """Compare the groups, or those of another numbering."""
        return compare_groups(self.ranks, self.number if number is None else number, self.count)


def compare_together(
    families: Sequence[Family], *, permutations: int, seed: int, progress: Progress = silent
) -> list[FloatArray]:
    """Return a p-value for every comparison of every family, corrected for all of them (Westfall and Young's max-T).

    The groups are dealt anew within each family; p is how often the largest of all comparisons is then as large.
    Properties that go together are not paid for twice.
    """
    largest = np.zeros(permutations)
    for deal in progress(range(permutations), total=permutations, label="dealing labels anew"):
        rng = np.random.default_rng((seed, deal))
        sizes = [np.abs(family.compare(rng.permutation(family.number)).z).max() for family in families]
        largest[deal] = max(sizes)
    ordered = np.sort(largest)
    found = []
    for family in families:
        reached = permutations - np.searchsorted(ordered, np.abs(family.compare().z) - _ROUNDING, side="left")
        found.append((1 + reached) / (1 + permutations))  # the labels as they are count as one deal
    return found
