"""Class folders: a folder's name is the label of the images in it; and a list of those that carry the artifact."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from hansfree.datasets.image_files import read_table
from hansfree.errors import DataError, nearest
from hansfree.studies.columns import PARTS, read_bits
from hansfree.studies.marked import by_hand


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The images below a folder, in the order of their paths."""

    paths: Sequence[str]
    labels: Sequence[str]  # of the images
    names: Sequence[str]  # of all class folders, also of those without an image
    parts: tuple[np.ndarray, ...] | None  # the rows of train, val and test; None where there are no such folders


def read_folders(root: Path) -> Folders:
    """List ``root/<class>/...``, or ``root/train|val|test/<class>/...``."""
    inside = _subfolders(root)
    given = [part for part in PARTS if part in inside]
    if given and len(given) < len(PARTS):
        (missing, *_) = (part for part in PARTS if part not in given)
        raise DataError(
            f"{root} has a folder {given[0]!r}, but none called {missing!r}: it needs all of {', '.join(PARTS)}, "
            "or class folders alone, which are split at random."
        )
    paths: list[str] = []
    labels: list[str] = []
    names: set[str] = set()
    sizes: list[int] = []
    for place in [root / part for part in given] or [root]:
        classes = _subfolders(place)
        if not classes:
            raise DataError(f"{place} has no class folders: its images belong in {place}/<class>/, or into a table.")
        names.update(classes)
        before = len(paths)
        for name in classes:
            found = list_pictures(place / name)
            paths += found
            labels += [name] * len(found)
        if len(paths) == before:
            raise DataError(f"{place} has no image in its folders {', '.join(classes[:5])}.")
        sizes.append(len(paths) - before)
    starts = np.cumsum([0, *sizes])
    parts = tuple(np.arange(start, stop) for start, stop in pairwise(starts)) if given else None
    return Folders(paths=paths, labels=labels, names=sorted(names), parts=parts)


def read_artifact_list(file: Path, paths: Sequence[str], *, root: Path, column: str) -> np.ndarray:
    """Return which of the images a list names, by path below ``root`` or by file name where only one has it.

    Args:
        file: a text with one image per line; or a CSV with a column ``image``. Where that has the ``column`` of bits
            too, only its rows with a 1 count.
    """
    row_of = {os.path.normpath(path): row for row, path in enumerate(paths)}
    rows_named: dict[str, list[int]] = {}
    for row, path in enumerate(paths):
        rows_named.setdefault(os.path.basename(path), []).append(row)
    bits = np.zeros(len(paths), dtype=bool)
    for name in _listed_names(file, column):
        exact = row_of.get(os.path.normpath(os.path.join(root, name)))
        same = rows_named.get(name, []) if exact is None else [exact]
        if len(same) > 1:
            first, second = (os.path.relpath(paths[row], root) for row in same[:2])
            raise DataError(f"{file} lists {name!r}, which is {first} and {second}: give the path below {root}.")
        if not same:
            known = [os.path.relpath(path, root) for path in paths] if os.path.dirname(name) else rows_named
            raise DataError(f"{file} lists {name!r}, which is not an image below {root}.{nearest(name, known)}")
        bits[same] = True
    return bits


def read_marked_list(file: Path, paths: Sequence[str], *, root: Path, column: str) -> np.ndarray | None:
    """Return of which images a list says that a person gave the bit; None where it does not tell."""
    if file.suffix.lower() != ".csv" or by_hand(column) not in read_table(file, ("image",))[0]:
        return None
    return read_artifact_list(file, paths, root=root, column=by_hand(column))


def _listed_names(file: Path, column: str) -> list[str]:
    if file.suffix.lower() == ".csv":
        rows = read_table(file, ("image",))
        chosen = read_bits(rows, column, table=file) if column in rows[0] else np.ones(len(rows), dtype=bool)
        names = [row["image"] for row, is_chosen in zip(rows, chosen) if is_chosen]
    else:
        try:
            names = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read as a text ({error})"
            raise DataError(f"{file} {reason}: it lists the images with the artifact, one per line.") from error
    return [name for name in names if name]


def _subfolders(folder: Path) -> list[str]:
    """Return the sorted names of the folders inside; hidden ones belong to other programs."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}.")
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def list_pictures(folder: Path) -> list[str]:
    """Return the image files below a folder, sorted; macOS leaves hidden ``._a.png`` that are none."""
    found: list[str] = []
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in _endings():
                found.append(os.path.join(place, name))
    return sorted(found)


@cache
def _endings() -> frozenset[str]:
    """Return the endings of all formats that Pillow reads."""
    return frozenset(ending for ending, form in Image.registered_extensions().items() if form in Image.OPEN)
