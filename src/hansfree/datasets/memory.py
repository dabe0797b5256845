"""A set whose images are drawn once and kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hansfree.datasets.base import Example, ExampleSet
from hansfree.errors import DataError
from hansfree.progress import Progress, silent


class InMemory(ExampleSet):
    """All images of a set, drawn once and kept as 8-bit values, for training over many epochs.

    Args:
        dataset: its images must have one size.
        label: what the progress is called.
    """

    def __init__(self, dataset: ExampleSet, *, progress: Progress = silent, label: str = "reading images") -> None:
        self.ids, self.labels, self.has_artifact = dataset.ids, dataset.labels, dataset.has_artifact
        self.is_relabelled = dataset.is_relabelled
        self.class_names, self.transform = dataset.class_names, dataset.transform
        self._fingerprint, self._pictures = dataset.fingerprint, dataset.pictures  # the examples are the same
        if not len(dataset):
            raise DataError("There is no image to keep in memory: the dataset is empty.")
        first, _ = dataset.pixels(0)
        self.images = np.empty((len(dataset), *first.shape), dtype=np.uint8)
        self.masks = np.empty((len(dataset), *first.shape[:2]), dtype=bool)
        for index in progress(range(len(dataset)), total=len(dataset), label=label):
            image, mask = dataset.pixels(index)
            if image.shape != first.shape:
                raise DataError(f"Image {index} has shape {image.shape}, the first {first.shape}: resize to one size.")
            self.images[index], self.masks[index] = image, mask

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return self._fingerprint

    @property
    def pictures(self) -> str:
        """Everything that images and labels depend on."""
        return self._pictures

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the uint8 image and the artifact's mask."""
        return self.images[index].copy(), self.masks[index].copy()

    def batch(self, indices: Sequence[int] | np.ndarray) -> Example:
        """Return many examples at once as one collated batch, which is faster than one by one."""
        chosen = np.asarray(indices, dtype=np.int64)
        return Example(
            self.transform(self.images[chosen]),
            torch.from_numpy(self.labels[chosen]),
            torch.from_numpy(self.has_artifact[chosen]),
            torch.from_numpy(self.masks[chosen]),
            torch.from_numpy(self.ids[chosen]),
        )

    def __getitem__(self, index: int) -> Example:
        return self._example(self.transform(self.images[index]), index)

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Return many examples; a ``DataLoader`` calls this for a whole batch."""
        images = self.transform(self.images[list(indices)])
        return [self._example(image, index) for image, index in zip(images, indices)]

    def _example(self, image: Tensor, index: int) -> Example:
        mask = torch.from_numpy(self.masks[index].copy())
        return Example(image, int(self.labels[index]), bool(self.has_artifact[index]), mask, int(self.ids[index]))
