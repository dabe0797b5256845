"""Images that carry their artifact by nature: one bit per image says which."""

from __future__ import annotations

import numpy as np

from hansfree.datasets.base import IMAGENET, ExampleSet, ImageSource, Normalize
from hansfree.errors import DataError
from hansfree.fingerprints import fingerprint


class Flagged(ExampleSet):
    """Images of ``source`` with their artifact bits; where the artifact is, nobody knows, and the masks are empty.

    Args:
        has_artifact: a bit per image of the source.
        rows: which images of the source, in order; None is all.
    """

    def __init__(
        self,
        source: ImageSource,
        has_artifact: np.ndarray,
        *,
        rows: np.ndarray | None = None,
        transform: Normalize = IMAGENET,
    ) -> None:
        if has_artifact.shape != (len(source),) or has_artifact.dtype != bool:
            raise DataError(
                f"{len(source)} images need as many artifact bits, not {has_artifact.dtype} of {has_artifact.shape}."
            )
        self.source, self.transform, self.class_names = source, transform, source.class_names
        self.rows = np.arange(len(source)) if rows is None else rows
        self.labels, self.ids = source.labels[self.rows], source.ids[self.rows]
        self.has_artifact = has_artifact[self.rows]

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        bits = fingerprint(self.rows, self.has_artifact)
        return f"Flagged({self.source.fingerprint}, {bits}, {self.transform!r})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and an empty mask."""
        image = self.source.image(int(self.rows[index]))
        return image, np.zeros(image.shape[:2], dtype=bool)
