"""Datasets of labelled images: in memory, subsets, with masks."""

from __future__ import annotations

import numpy as np

from hansfree._internal.hashing import fingerprint
from hansfree._internal.progress import Progress, silent
from hansfree.data.examples import IMAGENET, ImageDataset, ImageSource, Normalize
from hansfree.errors import DataError


class LabelledImages(ImageDataset):
    """Images of ``source`` with artifact labels; the masks are empty, as the location is not known.

    Args:
        has_artifact: One label per image of the source.
    """

    def __init__(self, source: ImageSource, has_artifact: np.ndarray, *, transform: Normalize = IMAGENET) -> None:
        if has_artifact.shape != (len(source),) or has_artifact.dtype != bool:
            raise DataError(
                f"{len(source)} images need as many artifact labels, not {has_artifact.dtype} of {has_artifact.shape}."
            )
        self.source, self.has_artifact, self.transform = source, has_artifact, transform
        self.labels, self.ids, self.class_names = source.labels, source.ids, source.class_names

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"LabelledImages({self.source.fingerprint}, {fingerprint(self.has_artifact)}, {self.transform!r})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and an empty mask."""
        image = self.source.image(index)
        return image, np.zeros(image.shape[:2], dtype=bool)


class Subset(ImageDataset):
    """The examples of ``dataset`` in ``rows``, in that order.

    Examples:
        >>> from hansfree.data import Subset, SyntheticLesions, Timestamp, WithArtifact
        >>> whole = WithArtifact(SyntheticLesions(80), Timestamp(), share=0.5, only_class=0)
        >>> len(Subset(whole, range(20)))
        20
    """

    def __init__(self, dataset: ImageDataset, rows: range | np.ndarray) -> None:
        chosen = np.asarray(rows, dtype=np.int64)
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(dataset)):
            raise DataError(f"Rows run from {chosen.min()} to {chosen.max()}, but the set has {len(dataset)} examples.")
        self.dataset, self.rows = dataset, chosen
        self._copy_facts(dataset, chosen)

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"Subset({self.dataset.fingerprint}, {fingerprint(self.rows)})"

    @property
    def pixel_fingerprint(self) -> str:
        """Everything that images and labels depend on."""
        return f"Subset({self.dataset.pixel_fingerprint}, {fingerprint(self.rows)})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and the artifact's mask."""
        return self.dataset.pixels(int(self.rows[index]))


class InMemory(ImageDataset):
    """All images of a dataset in memory, uint8, for training over many epochs; they must have one size."""

    fingerprint: str = ""  # those of the dataset: the examples are the same
    pixel_fingerprint: str = ""

    def __init__(self, dataset: ImageDataset, *, progress: Progress = silent, label: str = "reading images") -> None:
        self._copy_facts(dataset)
        self.fingerprint, self.pixel_fingerprint = dataset.fingerprint, dataset.pixel_fingerprint
        if not len(dataset):
            raise DataError("There is no image to load: the dataset is empty.")
        first, _ = dataset.pixels(0)
        self.images = np.empty((len(dataset), *first.shape), dtype=np.uint8)
        self.masks = np.empty((len(dataset), *first.shape[:2]), dtype=bool)
        for index in progress(range(len(dataset)), total=len(dataset), label=label):
            image, mask = dataset.pixels(index)
            if image.shape != first.shape:
                raise DataError(f"Image {index} has shape {image.shape}, the first {first.shape}: resize to one size.")
            self.images[index], self.masks[index] = image, mask

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the uint8 image and the artifact's mask."""
        return self.images[index].copy(), self.masks[index].copy()


class WithMasks(ImageDataset):
    """The examples of ``dataset`` with other masks for the images with the artifact.

    Never evaluate a method on masks from a CAV (``masks_from_heatmaps``) that it was trained with.

    Args:
        masks: bool, (m, height, width): one for each image with ``has_artifact``, in order.
    """

    def __init__(self, dataset: ImageDataset, masks: np.ndarray) -> None:
        rows = np.flatnonzero(dataset.has_artifact)
        if masks.dtype != bool or masks.ndim != 3 or len(masks) != len(rows):
            raise DataError(
                f"{len(rows)} images have the artifact and need as many masks, bool of shape ({len(rows)}, height, "
                f"width), not {masks.dtype} of {masks.shape}."
            )
        if len(rows) and (size := dataset.pixels(int(rows[0]))[0].shape[:2]) != masks.shape[1:]:
            raise DataError(f"The masks are {masks.shape[1:]}, the images {size}: they must have one size.")
        self.dataset, self.masks = dataset, masks
        self._copy_facts(dataset)
        self._position = np.cumsum(dataset.has_artifact) - 1  # row of its mask

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"WithMasks({self.dataset.fingerprint}, {fingerprint(self.masks)})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and its mask, which is empty for an image without the artifact."""
        image, mask = self.dataset.pixels(index)
        if self.has_artifact[index]:
            mask = self.masks[self._position[index]].copy()
        return image, mask
