"""Split rows into training, validation and test, stratified by class and grouped by patient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree._internal.hashing import fingerprint
from hansfree.data.examples import ImageSource
from hansfree.errors import DataError, OptionError, check_count

_SPLIT = 0x5B17  # separates this random choice from others with the same seed


class SourceSubset:
    """The images of ``source`` in ``rows``, as a source of its own; they keep their ids."""

    def __init__(self, source: ImageSource, rows: np.ndarray) -> None:
        self.source, self.rows = source, np.asarray(rows, dtype=np.int64)
        if self.rows.ndim != 1 or np.any((self.rows < 0) | (self.rows >= len(source))):
            raise DataError(f"Rows of {len(source)} images are a list of numbers from 0 to {len(source) - 1}.")
        self.labels, self.ids = source.labels[self.rows], source.ids[self.rows]
        self.id_range, self.class_names = source.id_range, source.class_names

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """Everything that pixels and labels depend on."""
        return f"SourceSubset({self.source.fingerprint}, {fingerprint(self.rows)})"

    def image(self, index: int) -> np.ndarray:
        """Return the pixels of one of the rows."""
        return self.source.image(int(self.rows[index]))


def split_rows(
    labels: np.ndarray,
    *,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    groups: Sequence[str] | np.ndarray | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, ...]:
    """Return the sorted rows of each part of a random stratified split.

    Counts per class and part are exact up to rounding; groups change them as little as possible.

    Args:
        shares: Of each part; they sum to 1.
        groups: Patient or lesion of each row, never in two parts. An empty text is a group of its own.
    """
    labels, parts = np.asarray(labels), np.asarray(shares, dtype=np.float64)
    if np.any(parts <= 0) or not np.isclose(parts.sum(), 1):
        raise OptionError(f"The shares of the parts are above 0 and sum to 1, not {tuple(shares)}.")
    check_count("seed", seed, least=0)
    if groups is not None and len(groups) != len(labels):
        raise DataError(f"{len(labels)} labels need as many groups, not {len(groups)}.")
    if not len(labels):
        raise DataError("There are no images to split.")
    classes = np.unique(labels, return_inverse=True)[1]
    target = np.outer(parts, np.bincount(classes))  # images per part and class
    rng = np.random.default_rng((seed, _SPLIT))
    part_of = np.full(len(labels), -1)
    if groups is not None:
        _place_groups(part_of, classes, np.asarray(groups), target, rng)
    _place_single(part_of, classes, target, rng)
    found = tuple(np.flatnonzero(part_of == part) for part in range(len(parts)))
    if not all(map(len, found)):
        given = f"{len(labels)} images" if groups is None else f"{len(labels)} images in their groups"
        raise DataError(f"{given} cannot be split into {len(parts)} parts of {_percent(parts)}: one would be empty.")
    return found


def _place_groups(
    part_of: np.ndarray, classes: np.ndarray, groups: np.ndarray, target: np.ndarray, rng: np.random.Generator
) -> None:
    """Assign each group of several rows to the part that gets nearest to its target (chi-square), large ones first."""
    names, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    shared = rng.permutation(np.flatnonzero((sizes > 1) & (names != "")))
    members = _rows_by_number(group_of)
    filled = np.zeros_like(target)
    for group in shared[np.argsort(-sizes[shared], kind="stable")]:
        rows = members[group]
        kinds, count = np.unique(classes[rows], return_counts=True)
        wanted = target[:, kinds]
        cost = (count * (count + 2 * (filled[:, kinds] - wanted)) / wanted).sum(axis=1)
        part = int(np.argmin(cost))
        part_of[rows] = part
        filled[part, kinds] += count


def _place_single(part_of: np.ndarray, classes: np.ndarray, target: np.ndarray, rng: np.random.Generator) -> None:
    """Assign single rows to the parts that still lack their class; rounding errors cancel over the classes."""
    owed = np.zeros(len(target))
    for kind, inside in enumerate(_rows_by_number(classes)):
        is_placed = part_of[inside] >= 0
        placed = np.bincount(part_of[inside[is_placed]], minlength=len(target))
        rows = rng.permutation(inside[~is_placed])
        lacking = np.round(target[:, kind] - placed, 9)  # 0.29 * 100 is 28.999999999999996
        counts = _whole(lacking, len(rows), owed)
        owed += np.clip(lacking - counts, -1, 1)
        part_of[rows] = np.repeat(np.arange(len(target)), counts)


def _whole(lacking: np.ndarray, total: int, owed: np.ndarray) -> np.ndarray:
    """Round to whole numbers of at least 0 that sum to ``total``; the largest debt is rounded up first."""
    counts: np.ndarray = np.floor(np.maximum(lacking, 0)).astype(np.int64)
    while counts.sum() < total:
        counts[np.argmax(np.where(lacking > counts, lacking - counts + owed, -np.inf))] += 1
    while counts.sum() > total:  # groups gave a part more than its share
        counts[np.argmin(np.where(counts > 0, lacking - counts, np.inf))] -= 1
    return counts


def _rows_by_number(numbers: np.ndarray) -> list[np.ndarray]:
    """Return the rows of number 0, of number 1, and so on, with one sort."""
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])


def _percent(parts: np.ndarray) -> str:
    return " / ".join(f"{100 * part:g} %" for part in parts)
