"""Your own images, for your own model: a table or class folders, and what is known about the artifact in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hansfree._internal.progress import Progress, silent
from hansfree.artifacts import Artifact
from hansfree.datasets.base import IMAGENET, Normalize
from hansfree.datasets.images import Channels, Resize
from hansfree.datasets.splits import split_rows
from hansfree.errors import DataError, OptionError, check_choice, nearest
from hansfree.studies.biased import (
    LEAST,
    check_enough,
    check_share,
    doubt_class,
    insert_bias,
    likely_class,
    natural_bias,
)
from hansfree.studies.listing import (
    PART_NAMES,
    ListedStudy,
    Listing,
    find_class,
    find_image,
    listed,
    number_labels,
    read_artifact_list,
    read_bits,
    read_folders,
    read_groups,
    read_marked,
    read_marked_list,
    read_rows,
    read_split,
    tell_marked,
)
from hansfree.studies.study import BiasedData, Recipe

_COLUMN = "artifact"
_WAYS_ON = (
    "Without one, mark the images on a page (`hansfree label FILE.yaml`), or have an artifact put in (`insert:` under "
    "`artifact:`)."
)
SHARES = (0.8, 0.1, 0.1)
"""Of training, validation and test images, as in the paper."""


class OwnImages(ListedStudy):
    """The images of a user, with the bias that they came with, one that is put in, or the first tested by the second.

    Which images carry the artifact is told by a column of the table or by a list; ``insert`` is an artifact that can
    be put into any image. With the bits alone, biased images are those that have it by nature. With ``insert`` alone,
    it is put into a ``share`` of one class. With both, a direction is learned from the natural ones, and held-out
    images without the artifact are compared with themselves after it was put in.

    Args:
        root: folder that the table's paths start from, or that holds ``<class>/`` or ``train|val|test/<class>/``.
        table: CSV file with the columns image and label, and where wanted split (train, val, test), group (a patient,
            never in two parts) and the artifact column; None: class folders.
        artifacts: for class folders, a text or CSV file that lists the images with the artifact.
        classes: names in the order of the model's outputs; None: those found, sorted. Labels that are whole numbers
            are numbers of outputs.
        label: of a multi-label table, whose cells hold several names separated by ``;`` or ``|``: the one of
            interest. The classes are then without and with it.
        artifact_column: of bits in the table.
        biased_class: that the artifact leaks into; None: the one of whose training images the largest share has it.
        shares: of training, validation and test images, where neither table nor folders tell the split.
        insert: artifact to put in.
        share: part of the biased class's training images that get it, where nothing tells which carry it by nature.
        channels: of the images that the model gets; ``transform`` has a mean and a std for each.
    """

    marks: np.ndarray | None  # by row, which images came with the artifact; None where nothing tells
    likely_class: int  # that is taken where none is given
    title = "Your images"
    artifacts = (_COLUMN,)
    recipe = Recipe(epochs={})  # the model is trained already
    skip_option = "data.skip_bad: true"

    def __init__(
        self,
        *,
        root: Path,
        table: Path | None = None,
        artifacts: Path | None = None,
        classes: Sequence[str] | None = None,
        label: str | None = None,
        artifact_column: str = _COLUMN,
        biased_class: str | None = None,
        shares: Sequence[float] = SHARES,
        insert: Artifact | None = None,
        share: float = 0.5,
        size: int = 224,
        resize: Resize = "squash",
        channels: Channels = 3,
        transform: Normalize = IMAGENET,
        seed: int = 0,
        skip_bad: bool = False,
        progress: Progress = silent,
    ) -> None:
        check_share(share)
        if len(shares) != len(PART_NAMES):
            raise OptionError(f"shares are three numbers, of {listed(PART_NAMES)} images, not {list(shares)}.")
        check_choice("resize", resize, Resize)
        check_choice("channels", channels, Channels)
        if size < 1:
            raise OptionError(f"The side of an image is 1 pixel or more, not {size}.")
        if len(transform.mean) != channels or len(transform.std) != channels:
            raise OptionError(
                f"channels is {channels}, but the transform has {len(transform.mean)} means and {len(transform.std)} "
                "stds: give one of each per channel."
            )
        if table is not None and artifacts is not None:
            raise OptionError("A table tells the artifact in a column: give no list of artifacts beside it.")
        if table is None and label is not None:
            raise OptionError("label chooses among several labels of one image, which only a table can have.")
        if insert is not None and not insert.fits_pictures():
            raise OptionError(f"The artifact {insert.name!r} cannot be put on a finished picture.")
        self.resize, self.channels, self.transform = resize, channels, transform
        self._table, self._list, self._column = table, artifacts, artifact_column
        self._classes, self._label, self._biased = classes, label, biased_class
        self._insert, self._share, self.shares = insert, share, tuple(shares)
        self.is_drawn = False  # the split, which `listing` finds out
        self.is_marked: np.ndarray | None = None  # by row: whether a person gave the bit; None where nothing tells
        super().__init__(root, size=size, seed=seed, skip_bad=skip_bad, progress=progress)

    def listing(self, root: Path) -> Listing:
        """Read the table or the folders, and split by class and artifact where neither does."""
        found = self._read_folders(root) if self._table is None else self._read_table(root, self._table)
        self.artifact = self._to_insert(found.place).name if self.marks is None else self._column
        if self.marks is not None and self.is_marked is not None:
            self.remarks.append(tell_marked(self.is_marked, self.marks))
        if self._biased is not None:
            self.biased_class = find_class(self._biased, found.class_names, option="biased_class")
        if self._classes is None and self._label is None:
            self.remarks.append(
                f"No classes were given: the outputs are taken to be {listed(found.class_names)}, in that order."
            )
        return found

    def _read_table(self, root: Path, table: Path) -> Listing:
        if not root.is_dir():
            raise DataError(f"There is no folder {root}.")
        filled = ("image",) if self._label is not None else ("image", "label")
        rows = read_rows(table, ("image", "label"), filled=filled)
        cells = [row["label"] for row in rows]
        class_names, labels = number_labels(cells, self._classes, label=self._label, place=table)
        has_bits = self._column in rows[0]
        if not has_bits and (self._insert is None or self._column != _COLUMN):
            raise DataError(
                f"{table} has no column {self._column!r} that tells which images carry the artifact."
                f"{nearest(self._column, rows[0])} It has: {', '.join(rows[0])}. {_WAYS_ON}"
            )
        self.marks = read_bits(rows, self._column, table=table) if has_bits else None
        self.is_marked = read_marked(rows, self._column, table=table) if has_bits else None
        groups = read_groups(rows, table=table, remarks=self.remarks)
        return Listing(
            place=table,
            paths=[find_image(root, row["image"]) for row in rows],
            labels=labels,
            class_names=class_names,
            parts=self._parts(read_split(rows, groups, table=table), labels, groups),
        )

    def _read_folders(self, root: Path) -> Listing:
        found = read_folders(root)
        class_names, labels = number_labels(found.labels, self._classes, also=found.names, place=root)
        self.remarks.append("Folders tell no groups: images of one subject may be in different parts.")
        self.marks = None
        if self._list is not None:
            self.marks = read_artifact_list(self._list, found.paths, root=root, column=self._column)
            self.is_marked = read_marked_list(self._list, found.paths, root=root, column=self._column)
        return Listing(
            place=root,
            paths=found.paths,
            labels=labels,
            class_names=class_names,
            parts=self._parts(found.parts, labels, None),
        )

    def _parts(
        self, given: tuple[np.ndarray, ...] | None, labels: np.ndarray, groups: Sequence[str] | None
    ) -> tuple[np.ndarray, ...]:
        """Return the given split; else draw one by class and artifact, so that every part has its share of both."""
        self.is_drawn = given is None
        if given is not None:
            if self.shares != SHARES:
                self.remarks.append(f"The split is given: the shares {list(self.shares)} are not used.")
            return given
        self.remarks.append(
            "The split is drawn: if the model was trained on some of these images, its test scores are too good. Where "
            "you know its split, give it."
        )
        kinds = 2 * labels + (0 if self.marks is None else self.marks)
        return split_rows(kinds, shares=self.shares, groups=groups, seed=self.seed)

    def report_lost(self, listing: Listing, names: Sequence[str]) -> None:
        """Say which classes have no training image: the model knows them, and is judged on them."""
        self.remarks.append(f"There is no training image of {listed(names)}: a correction may harm what it never sees.")

    def check_parts(self, listing: Listing) -> None:
        """Refuse images that no direction could be learned from; choose the biased class where none was given."""
        super().check_parts(listing)
        train, names = self.parts[0], listing.class_names
        if len(np.unique(self.source.labels)) < 2:
            only = names[self.source.labels[0]]
            raise DataError(f"All images of {listing.place} are of class {only!r}: there is nothing to tell apart.")
        if self.marks is not None:
            self._check_bits(listing, self.marks)
            return
        self.likely_class = int(train.labels.min())
        if self._biased is None:
            self.biased_class = self.likely_class
            self.remarks.append(
                f"No biased class was given: the artifact is put into {names[self.biased_class]!r}, the first."
            )

    def _check_bits(self, listing: Listing, by_row: np.ndarray) -> None:
        place, n = listing.place, len(self.source)
        bits = [by_row[part.ids] for part in self.parts]
        total = sum(int(part.sum()) for part in bits)
        if total in (0, n):
            which = "None" if total == 0 else "Each"
            raise DataError(
                f"{which} of the {n} images of {place} carries the artifact: it needs some with and without."
            )
        if bits[0].sum() < LEAST:
            raise DataError(
                f"{bits[0].sum()} of the {len(bits[0])} training images of {place} carry the artifact: a direction "
                f"needs at least {LEAST}."
            )
        for name, part in zip(PART_NAMES[1:], bits[1:]):
            if part.all():
                raise DataError(f"Each {name} image of {place} carries the artifact: some without it are needed.")
            if not part.any() and self._insert is None:
                self.remarks.append(f"No {name} image carries the artifact: what it does to them cannot be known.")
        self._choose_class(listing, self.parts[0].labels, bits[0])

    def _choose_class(self, listing: Listing, labels: np.ndarray, bits: np.ndarray) -> None:
        """Find the biased class, and refuse one whose training images show no difference to learn from."""
        n = len(listing.class_names)
        carry, all_of = np.bincount(labels[bits], minlength=n), np.bincount(labels, minlength=n)
        self.likely_class = likely_class(carry, all_of)
        if self._biased is None:
            self.biased_class = self.likely_class
        doubt = doubt_class(self.biased_class, carry, all_of, listing.class_names) if self._biased else None
        name, some, every = listing.class_names[self.biased_class], carry[self.biased_class], all_of[self.biased_class]
        if self._biased is None:
            self.remarks.append(
                f"No biased class was given: {name!r} is taken, {some} of whose {every} training images carry the "
                "artifact, the largest share."
            )
        check_enough(name, some, every, doubt=doubt)
        self.remarks += filter(None, [doubt])

    def data(self, model: str = "") -> BiasedData:
        """Return the sets, which are the same for all models."""
        if self.marks is not None:
            return natural_bias(
                self.parts,
                self.marks,
                name=self.artifact,
                biased_class=self.biased_class,
                insert=self._insert,
                seed=self.seed,
                transform=self.transform,
            )
        data = insert_bias(
            self.parts,
            self._to_insert(self._table or Path(self.root or "")),
            biased_class=self.biased_class,
            share=self._share,
            seed=self.seed,
            transform=self.transform,
        )
        bits = data.train.has_artifact[data.train.labels == self.biased_class]
        check_enough(data.train.class_names[self.biased_class], int(bits.sum()), len(bits))
        return data

    @property
    def is_natural(self) -> bool:
        """Whether training images came with the artifact; else it is put into them."""
        return self.marks is not None

    def _to_insert(self, place: Path) -> Artifact:
        """Return the artifact to put in; without one and without bits there is nothing to go by."""
        if self._insert is None:
            raise DataError(f"Nothing tells which images of {place} carry the artifact: give a list. {_WAYS_ON}")
        return self._insert
