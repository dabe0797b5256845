"""Datasets of pictures that a table lists: all checks, the split and the bias; a member reads its table."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.image_files import ImageFiles, check_images, unlisted_files
from hansfree.datasets.splits import Subset, split_rows
from hansfree.errors import DataError
from hansfree.progress import Progress, silent
from hansfree.studies.inserted import insert_bias
from hansfree.studies.study import BiasedData, Study


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What the table says: a file and a class per row, and who must not be in two parts."""

    folder: Path
    files: Sequence[str]  # names in the folder
    labels: Sequence[int]
    class_names: tuple[str, ...]
    groups: Sequence[str] | None = None  # a patient or lesion per row; an empty text is one of its own


class ListedStudy(Study):
    """Pictures in a folder, listed by a table, with an artifact put into some of the biased class.

    Everything is checked when it is made: the table, that it matches the folder, and every picture.
    """

    biased_class: ClassVar[int]

    def __init__(
        self,
        root: Path | None = None,
        *,
        artifact: str | None = None,
        size: int | None = None,
        seed: int = 0,
        skip_bad: bool = False,
        progress: Progress = silent,
    ) -> None:
        super().__init__(root, artifact=artifact, size=size, seed=seed, skip_bad=skip_bad)
        listing = self.listing(Path(root or ""))  # none at all was refused above
        twice = [name for name, count in Counter(listing.files).items() if count > 1]
        if twice:
            raise DataError(f"{listing.folder / twice[0]} is listed twice in the table of {self.title}.")
        unlisted = unlisted_files(listing.folder, listing.files)
        if unlisted and not skip_bad:
            raise DataError(f"{unlisted[0].rstrip('.')}: move the file away, or leave out such images with --skip-bad.")
        paths = [listing.folder / name for name in listing.files]
        good, bad = check_images(paths, skip_bad=skip_bad, progress=progress)
        self.skipped += unlisted + bad
        labels = np.asarray(listing.labels, dtype=np.int64)
        self.source = ImageFiles(
            [paths[row] for row in good], labels[good], class_names=listing.class_names, size=self.size, ids=good
        )
        # App. A: 80, 10 and 10 %. The whole table is split: an image keeps its part when another one turns bad.
        parts = split_rows(labels, groups=listing.groups, seed=seed)
        self.parts = [Subset(self.source, np.flatnonzero(np.isin(good, rows))) for rows in parts]
        if not all(map(len, self.parts)):
            raise DataError(
                f"Without its {len(bad)} bad images {self.title} lacks training, validation or test images."
            )

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """Read the table; raise a `DataError` with its path where it makes no sense."""

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
            seed=self.seed,
        )
