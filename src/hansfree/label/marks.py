"""What a person said about the images: yes or no for each, with undo, and the table that holds it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hansfree.datasets.image_files import read_table
from hansfree.errors import DataError
from hansfree.files import written_atomically
from hansfree.studies.columns import read_bits
from hansfree.studies.marked import by_hand, read_marked

UNKNOWN, NO, YES = -1, 0, 1


class Marks:
    """One mark per image, ``UNKNOWN``, ``NO`` or ``YES``; every step can be undone back to the start."""

    def __init__(self, values: np.ndarray) -> None:
        self.values: np.ndarray = values.astype(np.int8)
        self._history: list[tuple[np.ndarray, np.ndarray]] = []

    def set(self, images: Sequence[int], *, has_artifact: bool) -> None:
        """Mark images; as one step, however many they are."""
        n = len(self.values)
        wrong = [image for image in images if not 0 <= image < n]
        if wrong or not images:
            which = f"There is no image {wrong[0]}" if wrong else "No image was given"
            raise DataError(f"{which}: they are numbered 0 to {n - 1}.")
        rows = np.unique(np.asarray(images, dtype=np.int64))
        self._history.append((rows, self.values[rows].copy()))
        self.values[rows] = YES if has_artifact else NO

    def undo(self) -> list[int]:
        """Take back the last step; return its images, none where there is no step left."""
        if not self._history:
            return []
        rows, before = self._history.pop()
        self.values[rows] = before
        return [int(row) for row in rows]

    @property
    def steps(self) -> int:
        """How many steps can be undone."""
        return len(self._history)

    def count(self, value: int) -> int:
        """Return how many images have this mark."""
        return int((self.values == value).sum())


def read_marks(table: Path, names: Sequence[str], *, column: str) -> np.ndarray:
    """Return the marks that a table holds for the named images; those that it does not tell are unknown.

    A filled cell is a mark, unless the table says that it was only proposed.
    """
    rows = read_table(table, ("image",))
    return marks_of(rows, names, column=column, place=table)


def marks_of(rows: Sequence[Mapping[str, str]], names: Sequence[str], *, column: str, place: Path) -> np.ndarray:
    """Return the marks that rows of a table hold for the named images."""
    values = np.full(len(names), UNKNOWN, dtype=np.int8)
    filled = [dict(row) for row in rows if row.get(column)]
    if not filled:
        return values
    bits, is_marked = read_bits(filled, column, table=place), read_marked(filled, column, table=place)
    if is_marked is None:
        is_marked = np.ones(len(filled), dtype=bool)
    bit_of = {row["image"]: YES if bit else NO for row, bit, known in zip(filled, bits, is_marked) if known}
    for index, name in enumerate(names):
        values[index] = bit_of.get(name, UNKNOWN)
    return values


def write_marks(
    path: Path,
    rows: Sequence[Mapping[str, str]],
    marks: np.ndarray,
    proposed: np.ndarray | None,
    *,
    column: str,
) -> None:
    """Write the user's own table, all columns, with the artifact bits: whole or not at all.

    Args:
        proposed: bits for the images without a mark; None leaves their cells empty, for nothing is known of them.
    """
    known, hand = marks != UNKNOWN, by_hand(column)
    names = list(dict.fromkeys([*rows[0], column, hand]))
    bits = np.where(known, marks, 0 if proposed is None else proposed).astype(int).astype(str)
    if proposed is None:
        bits[~known] = ""
    told = {column: bits.tolist(), hand: known.astype(int).tolist()}
    # By columns: a table is written after every mark, and row by row would take three times as long.
    columns = [told[name] if name in told else [row[name] for row in rows] for name in names]
    with written_atomically(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*columns))
