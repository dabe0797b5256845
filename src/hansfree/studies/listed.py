"""Datasets of pictures that a table or folders list: all checks, the split and the bias; a member reads its list."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.base import normalisation_for
from hansfree.datasets.decoding import Channels, Resize
from hansfree.datasets.image_files import ImageFiles, check_images
from hansfree.datasets.splits import Subset, split_rows
from hansfree.errors import DataError
from hansfree.studies.inserted import insert_bias
from hansfree.studies.study import BiasedData, Study

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
