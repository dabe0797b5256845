"""Read a user's table, class folders or list of artifact images."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from hansfree.artifacts import Artifact
from hansfree.datasets.base import normalisation_for
from hansfree.datasets.images import Channels, ImageFiles, Resize, check_images, read_table
from hansfree.datasets.splits import Subset, split_rows
from hansfree.errors import DataError, OptionError, closest, nearest
from hansfree.studies.biased import insert_bias
from hansfree.studies.study import BiasedData, Study

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


def by_hand(column: str) -> str:
    """Return the column that tells bits that a person gave, 1, from what the labelling page proposed, 0."""
    return f"{column}_marked"


def read_marked(rows: Sequence[Row], column: str, *, table: Path) -> np.ndarray | None:
    """Return which bits of ``column`` a person gave; None where the table does not tell."""
    hand = by_hand(column)
    return read_bits(rows, hand, table=table) if hand in rows[0] else None


def tell_marked(is_marked: np.ndarray, has_artifact: np.ndarray) -> str:
    """Say how many bits are a person's, how many were proposed, and what that means for a run."""
    n, marked = len(is_marked), int(is_marked.sum())
    if marked == n:
        return f"A person marked all {n:,} artifact bits."
    positive = int((has_artifact & ~is_marked).sum())
    return (
        f"Of the {n:,} artifact bits, a person marked {marked:,} and the labelling page proposed {n - marked:,} "
        f"({positive:,} of these with the artifact). All are taken for true: where a proposed one is wrong, so are the "
        "direction and the scores."
    )


_INDEX = re.compile("[0-9]{1,5}")  # longer numbers are names: nobody has that many classes

_SEPARATORS = re.compile("[;|]")

_LISTED = 10  # names in an error sentence


def number_classes(
    found: Collection[str], classes: Sequence[str] | None, *, place: Path
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the classes' names in the order of the model's outputs, and the number of each label that was found.

    Labels are names; where all are whole numbers and not all are names, they are numbers of outputs, from 0.

    Args:
        classes: the names in the order of the outputs; None: the found ones, sorted.
    """
    if classes is not None and len(set(classes)) < len(classes):
        twice = next(name for name in classes if list(classes).count(name) > 1)
        raise OptionError(f"classes has {twice!r} twice: each output of the model needs a name of its own.")
    are_numbers = all(map(_INDEX.fullmatch, found))
    if classes is None:
        names = tuple(map(str, range(1 + max(map(int, found))))) if are_numbers else tuple(sorted(found))
    else:
        names = tuple(classes)
    if are_numbers and not set(found) <= set(names):  # as "007" of the first eight
        if (largest := max(map(int, found))) >= len(names):
            raise DataError(f"{place} has the label {largest}, but the {len(names)} classes are 0 to {len(names) - 1}.")
        return names, {label: int(label) for label in found}
    number_of = {name: number for number, name in enumerate(names)}
    for label in sorted(found):
        if label not in number_of:
            raise DataError(
                f"{place} has the label {label!r}, which is not among the classes that were given (data.classes)."
                f"{_hint(label, names)} Given: {listed(names)}."
            )
    return names, {label: number_of[label] for label in found}


def _hint(label: str, names: Sequence[str]) -> str:
    """Say what may be wrong; not "did you mean", as the typo is as likely in the names as in the label."""
    if split_labels(label) != [label]:
        return " It names several: say which one with 'label'."
    close = closest(label, names)
    return "" if close is None else f" The nearest of those is {close!r}."


def number_labels(
    cells: Sequence[str],
    classes: Sequence[str] | None,
    *,
    also: Collection[str] = (),
    label: str | None = None,
    place: Path,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes' names and the number of each cell's class.

    Args:
        also: labels that are there without a cell, as empty class folders.
        label: the one of interest, where cells hold several; the classes are then without and with it.
    """
    if label is None:
        names, number_of = number_classes({*cells, *also}, classes, place=place)
        return names, np.array([number_of[cell] for cell in cells])
    several = [split_labels(cell) for cell in cells]
    found = {one for labels in several for one in labels}
    if not found:
        raise DataError(f"{place} has no label at all.")
    names, number_of = number_classes(found, classes, place=place)
    wanted = find_class(label, names, option="label")
    is_there = [any(number_of[one] == wanted for one in labels) for labels in several]
    return (f"not {names[wanted]}", names[wanted]), np.array(is_there, dtype=np.int64)


def find_class(name: str, names: Sequence[str], *, option: str) -> int:
    """Return the number of a class that an option names, or whose number it gives."""
    if name in names:
        return list(names).index(name)
    if _INDEX.fullmatch(name) and int(name) < len(names):
        return int(name)
    raise OptionError(f"{option} is {name!r}, which is not a class.{nearest(name, names)} Known: {listed(names)}.")


def split_labels(cell: str) -> list[str]:
    """Return the labels that a cell of a multi-label table names, separated by ``;`` or ``|``; there may be none."""
    return [label for part in _SEPARATORS.split(cell) if (label := part.strip())]


def listed(names: Iterable[str]) -> str:
    """Return the first names as they are shown in a sentence."""
    shown = list(names)
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more


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


PART_NAMES = ("training", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What the files say before any picture is opened: a path and a class per row, and what belongs to which part."""

    place: Path  # the table or folder that says it, for error sentences
    paths: Sequence[str | Path]
    labels: Sequence[int] | np.ndarray
    class_names: tuple[str, ...]
    groups: Sequence[str] | None = None  # a patient or lesion per row; an empty text is one of its own
    parts: Sequence[np.ndarray] | None = None  # the rows to train, validate and test with; None: 80, 10 and 10 % of all
    ids: np.ndarray | None = None  # of the rows, where not all that is listed is used
    unlisted: Sequence[str] = ()  # a sentence per picture that is there and not in the list


class ListedStudy(Study):
    """Pictures that a list names, in three parts.

    Everything is checked when it is made: the list, that it matches the folder, and every picture. The whole list is
    split before any picture is looked at: an image keeps its part when another one turns bad.
    """

    biased_class: int  # of the class, or set by `listing` where it is only known then
    resize: Resize = "squash"
    channels: Channels = 3
    skip_option: ClassVar[str] = "--skip-bad"  # what a user writes to leave bad images out

    def read(self) -> None:
        """Read the list, check it against the folder, check every picture, and cut the three parts."""
        listing = self.listing(Path(self.root or ""))  # none at all was refused before
        twice = [path for path, count in Counter(map(str, listing.paths)).items() if count > 1]
        if twice:
            raise DataError(f"{listing.place} lists {twice[0]} twice.")
        if listing.unlisted and not self.skip_bad:
            sentence = listing.unlisted[0].rstrip(".")
            raise DataError(f"{sentence}: move the file away, or leave out such images with {self.skip_option}.")
        labels = np.asarray(listing.labels, dtype=np.int64)
        parts = listing.parts or split_rows(labels, groups=listing.groups, seed=self.seed)  # App. A: 80, 10 and 10 %
        good, bad = check_images(listing.paths, skip_bad=self.skip_bad, option=self.skip_option, progress=self.progress)
        self.skipped += [*listing.unlisted, *bad]
        ids = np.arange(len(labels)) if listing.ids is None else listing.ids
        self.source = ImageFiles(
            [listing.paths[row] for row in good],
            labels[good],
            class_names=listing.class_names,
            size=self.size,
            ids=ids[good],
            id_range=range(int(ids.max()) + 1),
            resize=self.resize,
            channels=self.channels,
        )
        self.parts = [Subset(self.source, np.flatnonzero(np.isin(good, rows))) for rows in parts]
        self.check_parts(listing)

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """Read the list; raise a `DataError` with its path where it makes no sense."""

    def check_parts(self, listing: Listing) -> None:
        """Refuse parts that are empty without their bad images."""
        for name, part in zip(PART_NAMES, self.parts):
            if not len(part):
                raise DataError(f"{listing.place} has no {name} image that can be read.")
        if (lost := np.setdiff1d(listing.labels, self.parts[0].labels)).size:
            self.report_lost(listing, [listing.class_names[label] for label in lost])

    def report_lost(self, listing: Listing, names: Sequence[str]) -> None:
        """Refuse training images without one of the classes: no model could learn it."""
        raise DataError(f"{listing.place} has no training image of class {names[0]!r}.")


class StampedStudy(ListedStudy):
    """Pictures that a list names, with an artifact put into some of the biased class."""

    flip_share: ClassVar[float] = 0.0  # of the other classes' training images: stamped, and labelled as the biased one

    @abstractmethod
    def share(self, model: str) -> float:
        """Return the part of the biased class's training images that carry the artifact."""

    def stamp(self, model: str) -> Artifact:
        """Return the artifact as it is put in for a model."""
        return Artifact.named(self.artifact)()

    def data(self, model: str) -> BiasedData:
        """Return the sets for a model."""
        return insert_bias(
            self.parts,
            self.stamp(model),
            biased_class=self.biased_class,
            share=self.share(model),
            flip_share=self.flip_share,
            seed=self.seed,
            transform=normalisation_for(model),
        )
