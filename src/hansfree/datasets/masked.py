"""A set whose artifact masks were found afterwards, so that RRR can be trained where nobody marked the artifact."""

from __future__ import annotations

import numpy as np

from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError
from hansfree.fingerprints import fingerprint


class Masked(ExampleSet):
    """The examples of ``dataset`` with other masks for the images that carry the artifact.

    Where the masks come from a CAV (``masks_from_heatmaps``), never score by them the method that was trained with
    them.

    Args:
        masks: bool, (m, height, width): one for each image with ``has_artifact``, in their order.
    """

    def __init__(self, dataset: ExampleSet, masks: np.ndarray) -> None:
        rows = np.flatnonzero(dataset.has_artifact)
        if masks.dtype != bool or masks.ndim != 3 or len(masks) != len(rows):
            raise DataError(
                f"{len(rows)} images carry the artifact and need as many masks, bool of shape ({len(rows)}, height, "
                f"width), not {masks.dtype} of {masks.shape}."
            )
        if len(rows) and (size := dataset.pixels(int(rows[0]))[0].shape[:2]) != masks.shape[1:]:
            raise DataError(f"The masks are {masks.shape[1:]}, the images {size}: they must have one size.")
        self.dataset, self.masks = dataset, masks
        self.labels, self.has_artifact, self.ids = dataset.labels, dataset.has_artifact, dataset.ids
        self.is_relabelled = dataset.is_relabelled
        self.class_names, self.transform = dataset.class_names, dataset.transform
        self._position = np.cumsum(dataset.has_artifact) - 1  # of an image with the artifact among the masks

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"Masked({self.dataset.fingerprint}, {fingerprint(self.masks)})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and its mask, which is empty for an image without the artifact."""
        image, mask = self.dataset.pixels(index)
        if self.has_artifact[index]:
            mask = self.masks[self._position[index]].copy()
        return image, mask
