"""Your own pictures with an artifact that they carry by nature: a column of 0 and 1 says which."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hansfree.datasets.flagged import Flagged
from hansfree.datasets.part import Part
from hansfree.errors import OptionError, nearest
from hansfree.models.architectures import architecture_named
from hansfree.studies.listed import Listing
from hansfree.studies.study import BiasedData
from hansfree.studies.table import ImageTable


class MarkedTable(ImageTable, name="marked"):
    """The images that a CSV table lists; the artifact is a column of 0 and 1 in it, and nothing is put in.

    The table is that of `ImageTable`. Held-out images with the artifact are others than those without it.
    """

    title = "Image table, artifact marked"
    artifacts = ("COLUMN",)  # any of the table's

    def listing(self, root: Path) -> Listing:
        """Read the table; the artifact must be one of its columns of 0 and 1."""
        listing = super().listing(root)
        self._check_column()
        return listing

    def _known(self, artifact: str | None) -> str:
        if artifact is None:
            raise OptionError("Say which column of 0 and 1 marks the artifact: --artifact COLUMN.")
        if hasattr(self, "artifact"):  # the table is read: another column of it
            self._check_column(artifact)
        return artifact

    def _check_column(self, name: str | None = None) -> None:
        column = name or self.artifact
        if column not in self._bits:
            raise OptionError(
                f"The table has no column {column!r} of 0 and 1.{nearest(column, self._bits)} "
                f"Known: {', '.join(self._bits) or 'none'}."
            )

    def marked(self, model: str) -> list[Flagged]:
        """Return the training, validation and test images with their bits."""
        bits, transform = self._bits[self.artifact], architecture_named(model).transform
        return [Flagged(part, bits[part.ids], transform=transform) for part in self.parts]

    def data(self, model: str) -> BiasedData:
        """Return the sets for a model: with the artifact or without it, as the column says."""
        train, val, test = self.marked(model)

        def some(images: Flagged, *, has_artifact: bool) -> Part:
            return Part(images, np.flatnonzero(images.has_artifact == has_artifact))

        return BiasedData(
            train=train,
            val_clean=some(val, has_artifact=False),
            val_biased=some(val, has_artifact=True),
            test_clean=some(test, has_artifact=False),
            test_biased=some(test, has_artifact=True),
            clean_train=some(train, has_artifact=False),
            biased_class=self.biased_class,
            artifact=self.artifact,
            is_localized=True,
            is_inserted=False,
            has_masks=False,
        )
