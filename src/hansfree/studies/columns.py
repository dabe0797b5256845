"""The columns of a user's table: which file a row means, its part, its group, its artifact bit."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from hansfree.datasets.image_files import read_table
from hansfree.errors import DataError, nearest

PARTS = ("train", "val", "test")
ENDINGS = ("", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")

BITS = {"0": False, "1": True, "false": False, "true": True}  # the words of spreadsheets and of pandas

Row = dict[str, str]


def read_rows(table: Path, columns: Collection[str], *, filled: Collection[str]) -> list[Row]:
    """Read a table that has at least ``columns``; a row with nothing in one of ``filled`` is an error."""
    rows = read_table(table, columns)
    for row in rows:
        for column in filled:
            if not row[column]:
                raise DataError(f"{table} has a row without {column}: {', '.join(row.values())}.")
    return rows


def find_image(folder: Path, name: str) -> Path:
    """Return the file of that name in the folder or in ``images``; where there is none, the one that was meant."""
    for place in (folder, folder / "images"):
        for ending in ENDINGS:
            path = place / f"{name}{ending}"
            if os.path.isfile(path):  # unlike Path.is_file, False for a name that no file can have
                return path
    return folder / name


def read_groups(rows: Sequence[Row], *, table: Path, remarks: list[str]) -> list[str] | None:
    """Return the patient or lesion of each row; where the table does not tell, that is a remark."""
    if "group" in rows[0]:
        return [row["group"] for row in rows]
    remarks.append(f"{table.name} has no column 'group': images of one subject may be in different parts.")
    return None


def read_split(rows: Sequence[Row], groups: Sequence[str] | None, *, table: Path) -> tuple[np.ndarray, ...] | None:
    """Return the rows of the three parts as the table says, None where it does not; a group in two is an error."""
    if "split" not in rows[0]:
        return None
    for row in rows:
        if row["split"] not in PARTS:
            raise DataError(
                f"{table} puts {row['image']!r} into the split {row['split']!r}.{nearest(row['split'], PARTS)} "
                f"Allowed: {', '.join(PARTS)}."
            )
    part_of: dict[str, str] = {}
    for group, row in zip(groups or (), rows):
        if group and part_of.setdefault(group, row["split"]) != row["split"]:
            raise DataError(
                f"{table} has group {group!r} in {part_of[group]} and in {row['split']}: it belongs in one."
            )
    split = np.array([row["split"] for row in rows])
    parts = tuple(np.flatnonzero(split == name) for name in PARTS)
    for name, part in zip(PARTS, parts):
        if not len(part):
            raise DataError(f"{table} has no image in the split {name!r}.")
    return parts


def read_bits(rows: Sequence[Row], column: str, *, table: Path) -> np.ndarray:
    """Return a column of 0 and 1; a gap or another value is an error, for nobody knows what was meant."""
    for row in rows:
        if row[column].lower() not in BITS:
            given = repr(row[column]) if row[column] else "nothing"
            raise DataError(f"{table} has {given} as {column} of {row['image']!r}. Allowed: 0 and 1, false and true.")
    return np.array([BITS[row[column].lower()] for row in rows])
