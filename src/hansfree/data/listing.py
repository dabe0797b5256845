"""Read tables, class folders and artifact lists: the one reader of what users write about their images."""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from hansfree._internal.progress import Progress, silent
from hansfree.data.examples import ImageSource
from hansfree.data.images import Channels, ImageFiles, Resize, check_images, find_copies
from hansfree.data.splits import SourceSubset
from hansfree.errors import DataError, OptionError, closest, nearest

PARTS = ("train", "val", "test")
PART_NAMES = ("training", "validation", "test")
TOO_FEW_OUTPUTS = (
    "A class without an output cannot be predicted: leave its images out, label them as another class, or give a model "
    "with an output for each class."
)
Row = dict[str, str]
_ENDINGS = ("", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
BITS = {"0": False, "1": True, "false": False, "true": True}
"""Cells of artifact labels, as spreadsheets and pandas write them; in any case."""
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}  # that spreadsheets write in place of commas, by country
_INDEX = re.compile("[0-9]{1,5}")  # longer numbers are names: no model has that many classes
_LABEL_SEPARATORS = re.compile("[;|]")
_MAX_LISTED = 10  # names in an error message


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Paths, classes and table columns of images, known before any image is opened."""

    place: Path  # the table or folder, for error messages
    paths: Sequence[str | Path]
    labels: np.ndarray
    class_names: tuple[str, ...]
    rows: Sequence[Row] = ()  # all columns of the table; of class folders: image, label and, where given, split
    groups: Sequence[str] | None = None  # patient or lesion per row; an empty text is a group of its own
    parts: Sequence[np.ndarray] | None = None  # rows of train, val and test; None where the split is not given
    ids: np.ndarray | None = None  # of the rows, where only a part of a larger table is used
    unlisted: Sequence[str] = ()  # a sentence per image file that is not in the table

    def __post_init__(self) -> None:
        """Reject a path that is listed twice."""
        object.__setattr__(self, "labels", np.asarray(self.labels, dtype=np.int64))
        twice = [path for path, count in Counter(map(str, self.paths)).items() if count > 1]
        if twice:
            raise DataError(f"{self.place} lists {twice[0]} twice.")

    @classmethod
    def read(
        cls,
        root: Path,
        *,
        table: Path | None = None,
        classes: Sequence[str] | None = None,
        label: str | None = None,
    ) -> Listing:
        """Read a table, or class folders where none is given.

        Args:
            root: Folder that the table's paths start from, or that holds ``<class>/`` or ``train|val|test/<class>/``.
            table: CSV file with the columns image and label, and optionally split (train, val, test) and group (a
                patient, never in two parts).
            classes: Names in the order of the model's outputs; None: those found, sorted, or numbers of outputs.
            label: Of a multi-label table: the one of interest. The classes are then without and with it.
        """
        if not root.is_dir():
            raise DataError(f"There is no folder {root}.")
        empty: Collection[str] = ()  # classes without an image
        if table is None:
            rows, empty = _read_folders(root)
            paths: Sequence[str | Path] = [os.path.join(root, row["image"]) for row in rows]
            label = None  # folders are classes
        else:
            rows = read_table(table, ("image", "label"), filled=("image",) if label is not None else ("image", "label"))
            paths = [find_image(root, row["image"]) for row in rows]
        place, cells = table or root, [row["label"] for row in rows]
        class_names, labels = number_labels(cells, classes, also=empty, label=label, place=place)
        groups = [row["group"] for row in rows] if "group" in rows[0] else None
        return cls(
            place=place,
            paths=paths,
            labels=labels,
            class_names=class_names,
            rows=rows,
            groups=groups,
            parts=_read_split(rows, groups, place=place),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table."""
        return tuple(self.rows[0])

    @property
    def group_note(self) -> str | None:
        """A sentence for the report where nothing names the patients."""
        if self.groups is not None:
            return None
        missing = f"{self.place.name} has no column 'group'" if self.place.is_file() else "Class folders have no groups"
        return f"{missing}: images of one subject may be in different parts of the split."

    def artifact_labels(self, column: str) -> np.ndarray:
        """Return a column of 0 and 1."""
        return read_bits(self.rows, column, place=self.place)

    def is_annotated(self, column: str) -> np.ndarray | None:
        """Return which artifact labels of ``column`` a person gave; None where the table does not say."""
        annotated = annotated_column(column)
        return self.artifact_labels(annotated) if annotated in self.columns else None

    def read_artifact_list(self, file: Path, *, column: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Return which images a list names as having the artifact, and which labels a person gave (None: not known).

        Args:
            file: A text with one image per line (path below the root, or a unique file name), or a CSV with a column
                ``image``. Where that has ``column`` too, only its rows with a 1 count.
        """
        rows, annotated = _read_list(file), annotated_column(column)

        def named_in(bits: str) -> np.ndarray:
            chosen = read_bits(rows, bits, place=file) if rows and bits in rows[0] else itertools.repeat(True)
            return self._find([row["image"] for row, is_chosen in zip(rows, chosen) if is_chosen], file)

        return named_in(column), named_in(annotated) if rows and annotated in rows[0] else None

    def _find(self, names: Iterable[str], file: Path) -> np.ndarray:
        """Return which images are named, one bit each."""
        root = self.place
        row_of = {os.path.normpath(path): row for row, path in enumerate(self.paths)}
        rows_named: dict[str, list[int]] = {}
        for row, path in enumerate(self.paths):
            rows_named.setdefault(os.path.basename(path), []).append(row)
        found = np.zeros(len(self.paths), dtype=bool)
        for name in filter(None, names):
            exact = row_of.get(os.path.normpath(os.path.join(root, name)))
            same = rows_named.get(name, []) if exact is None else [exact]
            if len(same) > 1:
                first, second = (os.path.relpath(self.paths[row], root) for row in same[:2])
                raise DataError(f"{file} lists {name!r}, which is {first} and {second}: give the path below {root}.")
            if not same:
                known = [os.path.relpath(path, root) for path in self.paths] if os.path.dirname(name) else rows_named
                raise DataError(f"{file} lists {name!r}, which is not an image below {root}.{nearest(name, known)}")
            found[same] = True
        return found

    def find_copies(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return groups of these rows whose images have the same content."""
        return [rows[group] for group in find_copies([self.paths[row] for row in rows])]

    def open(
        self,
        *,
        size: int,
        resize: Resize = "squash",
        channels: Channels = 3,
        skip_bad: bool = False,
        option: str = "--skip-bad",
        progress: Progress = silent,
    ) -> OpenedImages:
        """Check every file, and return the readable images; options as for `check_images`."""
        if self.unlisted and not skip_bad:
            sentence = self.unlisted[0].rstrip(".")
            raise DataError(f"{sentence}: move the file away, or leave out such images with {option}.")
        good, bad = check_images(self.paths, skip_bad=skip_bad, option=option, progress=progress)
        ids = np.arange(len(self.labels)) if self.ids is None else self.ids
        source = ImageFiles(
            [self.paths[row] for row in good],
            self.labels[good],
            class_names=self.class_names,
            size=size,
            ids=ids[good],
            id_range=range(int(ids.max()) + 1),
            resize=resize,
            channels=channels,
        )
        return OpenedImages(self, source, good, (*self.unlisted, *bad))


@dataclass(frozen=True, eq=False)
class OpenedImages:
    """The readable images of a listing."""

    listing: Listing
    source: ImageSource
    rows: np.ndarray  # of the listing, one per image
    skipped: tuple[str, ...]  # a sentence per image that was left out

    def split(self, parts: Sequence[np.ndarray]) -> list[SourceSubset]:
        """Return training, validation and test images; reject a part without a readable image."""
        found = [SourceSubset(self.source, np.flatnonzero(np.isin(self.rows, rows))) for rows in parts]
        for name, part in zip(PART_NAMES, found):
            if not len(part):
                raise DataError(f"{self.listing.place} has no {name} image that can be read.")
        return found

    def untrained_classes(self, train: SourceSubset) -> list[str]:
        """Return the classes of the listing without a training image."""
        names = self.listing.class_names
        return [names[label] for label in np.setdiff1d(self.listing.labels, train.labels)]


STANDARD_COLUMNS = ("image", "label", "split", "group")
"""Columns of a table that are not artifact labels."""


def read_table(path: Path, columns: Collection[str], *, filled: Collection[str] = ()) -> list[Row]:
    """Read a CSV file with these columns; the ``filled`` ones have no empty cell. Values have no spaces around them."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in line] for line in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} {_why_unreadable(error, 'a CSV table')}.") from error
    header = lines[0] if lines else []
    if twice := [name for name, count in Counter(header).items() if name and count > 1]:
        raise DataError(f"{path} has the column {twice[0]!r} twice.")
    if missing := [column for column in columns if column not in header]:
        for separator, name in _OTHER_SEPARATORS.items():
            if len(header) == 1 and separator in header[0]:
                raise DataError(f"{path} has {name} between its columns. Export it with commas.")
        raise DataError(
            f"{path} has no column {missing[0]!r}.{nearest(missing[0], header)} It has: "
            f"{', '.join(header) or 'nothing'}."
        )
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if not any(line):
            continue
        if len(line) != len(header):
            raise DataError(f"{path} has {len(line)} values in row {number}, its header has {len(header)}.")
        rows.append(dict(zip(header, line)))
        for column in filled:
            if not rows[-1][column]:
                raise DataError(f"{path} has a row without {column}: {', '.join(line)}.")
    if not rows:
        raise DataError(f"{path} has a header but no rows.")
    return rows


def find_image(folder: Path, name: str) -> Path:
    """Return the file of that name in the folder or in ``images``, with or without its ending."""
    for place in (folder, folder / "images"):
        for ending in _ENDINGS:
            path = place / f"{name}{ending}"
            if os.path.isfile(path):  # unlike Path.is_file, False for a name that no file can have
                return path
    return folder / name


def _read_folders(root: Path) -> tuple[list[Row], set[str]]:
    """List ``root/<class>/...``, or ``root/train|val|test/<class>/...``, as a table; also return the empty classes."""
    inside = _subfolders(root)
    given = [part for part in PARTS if part in inside]
    missing = [part for part in PARTS if part not in inside]
    if given and missing:
        raise DataError(
            f"{root} has a folder {given[0]!r}, but none called {missing[0]!r}. It needs all of {', '.join(PARTS)}, or "
            "class folders alone, which are split at random."
        )
    rows: list[Row] = []
    found: set[str] = set()
    for part in given or [""]:
        place, before = root / part, len(rows)
        names = _subfolders(place)
        if not names:
            raise DataError(f"{place} has no class folders. Put its images into {place}/<class>/, or give a table.")
        found.update(names)
        for name in names:
            row = {"label": name} | ({"split": part} if part else {})
            rows += [{"image": os.path.relpath(file, root), **row} for file in list_images(place / name)]
        if len(rows) == before:
            raise DataError(f"{place} has no image in its folders {', '.join(names[:5])}.")
    return rows, found - {row["label"] for row in rows}


def _read_split(rows: Sequence[Row], groups: Sequence[str] | None, *, place: Path) -> tuple[np.ndarray, ...] | None:
    """Return the rows of the three parts, None where no column ``split`` is given; a group in two is an error."""
    if "split" not in rows[0]:
        return None
    for row in rows:
        if row["split"] not in PARTS:
            raise DataError(
                f"{place} puts {row['image']!r} into the split {row['split']!r}.{nearest(row['split'], PARTS)} "
                f"Allowed: {', '.join(PARTS)}."
            )
    part_of: dict[str, str] = {}
    for group, row in zip(groups or (), rows):
        if group and part_of.setdefault(group, row["split"]) != row["split"]:
            raise DataError(
                f"{place} has group {group!r} in {part_of[group]} and in {row['split']}: it belongs in one."
            )
    split = np.array([row["split"] for row in rows])
    parts = tuple(np.flatnonzero(split == name) for name in PARTS)
    for name, part in zip(PARTS, parts):
        if not len(part):
            raise DataError(f"{place} has no image in the split {name!r}.")
    return parts


def read_bits(rows: Sequence[Mapping[str, str]], column: str, *, place: Path) -> np.ndarray:
    """Return a column of 0 and 1; an empty cell or another value is an error."""
    for row in rows:
        if row[column].lower() not in BITS:
            given = repr(row[column]) if row[column] else "nothing"
            raise DataError(f"{place} has {given} as {column} of {row['image']!r}. Allowed: 0 and 1, false and true.")
    return np.array([BITS[row[column].lower()] for row in rows], dtype=bool)


def annotated_column(column: str) -> str:
    """Return the column that is 1 where a person gave the artifact label, 0 where the labelling page suggested it."""
    return f"{column}_annotated"


def read_annotations(rows: Sequence[Mapping[str, str]], column: str, *, place: Path) -> dict[str, bool]:
    """Return the artifact labels that a person gave, by image; empty cells and suggested labels are left out."""
    filled = [row for row in rows if row.get(column)]
    if not filled:
        return {}
    labels, annotated = read_bits(filled, column, place=place), annotated_column(column)
    known = read_bits(filled, annotated, place=place) if annotated in filled[0] else np.ones(len(filled), dtype=bool)
    return {row["image"]: bool(label) for row, label, is_known in zip(filled, labels, known) if is_known}


def number_classes(
    found: Collection[str], classes: Sequence[str] | None, *, place: Path
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the classes' names in the order of the model's outputs, and the number of each label that was found.

    Labels are names; where all are whole numbers and not all are names, they are numbers of outputs, from 0.
    """
    if twice := [name for name, count in Counter(classes).items() if count > 1]:
        raise OptionError(f"classes has {twice[0]!r} twice: each output of the model needs a name of its own.")
    are_numbers = all(map(_INDEX.fullmatch, found))
    names = tuple(sorted(found) if classes is None else classes)
    if classes is None and are_numbers:
        names = tuple(map(str, range(1 + max(map(int, found)))))
    if are_numbers and not set(found) <= set(names):  # as "007" of the first eight
        if (largest := max(map(int, found))) >= len(names):
            raise DataError(f"{place} has the label {largest}, but the {len(names)} classes are 0 to {len(names) - 1}.")
        return names, {label: int(label) for label in found}
    if unknown := sorted(set(found) - set(names)):
        label = unknown[0]
        close = closest(label, names)  # not "did you mean": the typo is as likely in the names as in the label
        hint = "" if close is None else f" The nearest of those is {close!r}."
        if _split_labels(label) != [label]:
            hint = " It names several: select one with 'label'."
        raise DataError(
            f"{place} has the label {label!r}, which is not among the given classes (data.classes).{hint} "
            f"Given: {listed(names)}."
        )
    return names, {name: number for number, name in enumerate(names) if name in found}


def number_labels(
    cells: Sequence[str], classes: Sequence[str] | None, *, also: Collection[str], label: str | None, place: Path
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes' names and the class number of each cell; ``also`` are labels without a cell."""
    if label is None:
        names, number_of = number_classes({*cells, *also}, classes, place=place)
        return names, np.array([number_of[cell] for cell in cells])
    several = [_split_labels(cell) for cell in cells]
    found = set().union(*several)
    if not found:
        raise DataError(f"{place} has no label at all.")
    names, number_of = number_classes(found, classes, place=place)
    wanted = find_class(label, names, option="label")
    is_there = [any(number_of[one] == wanted for one in labels) for labels in several]
    return (f"not {names[wanted]}", names[wanted]), np.array(is_there, dtype=np.int64)


def find_class(name: str, names: Sequence[str], *, option: str) -> int:
    """Return the number of a class that an option gives by name or by number."""
    if name in names:
        return list(names).index(name)
    if _INDEX.fullmatch(name) and int(name) < len(names):
        return int(name)
    raise OptionError(f"{option} is {name!r}, which is not a class.{nearest(name, names)} Known: {listed(names)}.")


def _split_labels(cell: str) -> list[str]:
    """Return the labels in a cell of a multi-label table, separated by ``;`` or ``|``; there may be none."""
    return [label for part in _LABEL_SEPARATORS.split(cell) if (label := part.strip())]


def listed(names: Iterable[str]) -> str:
    """Return the first names, joined for a message."""
    shown = list(names)
    more = f" and {len(shown) - _MAX_LISTED} more" if len(shown) > _MAX_LISTED else ""
    return ", ".join(shown[:_MAX_LISTED]) + more


def _read_list(file: Path) -> list[Row]:
    """Return the rows of an artifact list; of a text, its lines as ``image``."""
    if file.suffix.lower() == ".csv":
        return read_table(file, ("image",))
    try:
        return [{"image": line.strip()} for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = _why_unreadable(error, "a text")
        raise DataError(f"{file} {reason}: it lists the images with the artifact, one per line.") from error


def _why_unreadable(error: Exception, form: str) -> str:
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read as {form} ({error})"


def _subfolders(folder: Path) -> list[str]:
    """Return the sorted names of the folders inside; hidden ones belong to other programs."""
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def list_images(folder: Path) -> list[str]:
    """Return the image files below a folder, sorted; hidden files (macOS: ``._a.png``) are not images."""
    found: list[str] = []
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in _image_endings():
                found.append(os.path.join(place, name))
    return sorted(found)


@cache
def _image_endings() -> frozenset[str]:
    """Return the endings of all formats that Pillow reads."""
    return frozenset(ending for ending, form in Image.registered_extensions().items() if form in Image.OPEN)
