"""Your own pictures: a folder of images and a table that says what each shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree.data import (
    BITS,
    STANDARD_COLUMNS,
    BiasedData,
    LabelledImages,
    Listing,
    Timestamp,
    check_share,
    insertable_artifacts,
    read_table,
)
from hansfree.errors import DataError, OptionError, nearest
from hansfree_paper.dataset import InsertedBenchmark, Recipe
from hansfree_paper.starts import normalisation_for

_GUESSED = "No biased class was given: "
_MAX_STRAY = 0.1  # a column with more other values among its 0 and 1 is not a column of flags


class ImageTable(InsertedBenchmark, name="table"):
    """The images that a CSV table lists, with an artifact inserted into some of one class.

    The table is ``labels.csv``, or the only CSV file in the folder, as `hansfree.data.Listing` reads it. Its columns of
    0 and 1 are natural artifacts; the artifact is inserted, or one of those columns.

    Args:
        biased_class: the label that the artifact leaks into; None is the first in alphabetical order, or the one that
            carries a natural artifact most often.
        share: part of its training images that carry the artifact, between 0 and 1.
    """

    title = "Image table"
    artifacts = insertable_artifacts(Timestamp.name)
    further_artifacts = "a column of 0 and 1"
    options = ("biased_class", "share")
    recipe = Recipe(epochs={})  # none is published

    def __init__(
        self,
        root: Path | None = None,
        *,
        artifact: str | None = None,
        size: int | None = None,
        seed: int = 0,
        skip_bad: bool = False,
        progress: Progress = silent,
        biased_class: str | None = None,
        share: float = 0.5,
    ) -> None:
        check_share(share)
        self._biased, self._share = biased_class, share
        super().__init__(root, artifact=artifact, size=size, seed=seed, skip_bad=skip_bad, progress=progress)

    def listing(self, root: Path) -> Listing:
        """Read the table: images, labels, natural flags, and split and groups where it has them."""
        table = find_table(root)
        names = sorted({row["label"] for row in read_table(table, ("label",))})  # numbers, too
        listing = Listing.read(root, table=table, classes=names)
        self._bits = read_flags(listing)
        self._known(self.artifact)
        class_names = listing.class_names
        if len(class_names) < 2:
            raise DataError(f"{table} has a single label, {class_names[0]!r}: there is nothing to tell apart.")
        if self._biased is not None and self._biased not in class_names:
            raise OptionError(
                f"{table} has no label {self._biased!r}.{nearest(self._biased, class_names)} "
                f"Known: {', '.join(class_names)}."
            )
        self._class_names, self._labels = class_names, listing.labels
        self._find_class()
        self.remarks += filter(None, [listing.group_note])
        return listing

    def with_artifact(self, artifact: str | None) -> Self:
        """Return the same table with another artifact, which may leak into another class."""
        other = super().with_artifact(artifact)
        other._find_class()
        return other

    def data(self, model: str) -> BiasedData:
        """Return the sets for a model."""
        bits = self._bits.get(self.artifact)
        return super().data(model) if bits is None else self.natural_bias(model, bits, clean_train=True)

    def marked(self, model: str) -> tuple[LabelledImages, LabelledImages, LabelledImages] | None:
        """Return the three parts with the bits of the column that the artifact is, where it is one."""
        if self.artifact not in self._bits:
            return None
        bits, transform = self._bits[self.artifact], normalisation_for(model)
        train, val, test = (LabelledImages(part, bits[part.ids], transform=transform) for part in self.parts)
        return train, val, test

    def share(self, model: str) -> float:
        """Return the given share, the same for all models."""
        return self._share

    def flags(self) -> dict[str, np.ndarray]:
        """Return the table's columns of 0 and 1 for the test images, in their order: natural groups to score by."""
        return {name: bits[self.parts[2].ids] for name, bits in self._bits.items()}

    def _known(self, artifact: str | None) -> str:
        """Accept any name until the table is read, whose columns are artifacts too."""
        name = artifact or self.artifacts[0]
        known = (*self.artifacts, *self._bits) if hasattr(self, "_bits") else (name,)
        if name not in known:
            raise OptionError(
                f"{self.title} has no artifact {name!r}.{nearest(name, known)} Known: {', '.join(known)}."
            )
        return name

    def _find_class(self) -> None:
        """Take the given class; else that which carries a natural artifact most often, or the first in the alphabet."""
        names = self._class_names
        if self._biased is not None:
            self.biased_class = names.index(self._biased)
            return
        if (bits := self._bits.get(self.artifact)) is None:
            self.biased_class, why = 0, f"the artifact is inserted into {names[0]!r}, the first in the alphabet"
        else:
            self.biased_class = int(np.argmax([bits[self._labels == label].mean() for label in range(len(names))]))
            why = f"{self.artifact} is most frequent in {names[self.biased_class]!r}"
        self.remarks = [f"{_GUESSED}{why}.", *(each for each in self.remarks if not each.startswith(_GUESSED))]


def find_table(folder: Path) -> Path:
    """Return ``labels.csv``, or the only CSV file of the folder."""
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}.")
    tables = sorted(folder.glob("*.csv"))
    if (named := folder / "labels.csv") in tables:
        return named
    if len(tables) != 1:
        found = f"{len(tables)} others ({', '.join(table.name for table in tables)})" if tables else "no other table"
        raise DataError(f"{folder} has no labels.csv, and {found}.")
    return tables[0]


def read_flags(listing: Listing) -> dict[str, np.ndarray]:
    """Return all columns of 0 and 1, or false and true; a gap, or a few other values, is an error and not a 0."""
    found: dict[str, np.ndarray] = {}
    for name in listing.columns:
        values = [row[name] for row in listing.rows]
        others = [value for value in values if value and value.lower() not in BITS]
        bits = len(values) - values.count("") - len(others)
        if name in STANDARD_COLUMNS or not bits or len(others) > _MAX_STRAY * (bits + len(others)):
            continue
        if others:
            image = listing.rows[values.index(others[0])]["image"]
            raise DataError(
                f"{listing.place} gives {image!r} the {name} {others[0]!r}, where {bits} others have 0 or 1, false or "
                "true. Correct it, or remove the column if it means something else."
            )
        found[name] = listing.artifact_labels(name)
    return found
