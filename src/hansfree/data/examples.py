"""Examples, image sources, the base class of datasets, and normalisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from hansfree.errors import DataError


class ImageSource(Protocol):
    """Images without artifacts and their classes: what a new dataset has to implement."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> np.ndarray:
        """The class of each image, int64; known without reading a pixel."""

    @property
    def ids(self) -> np.ndarray:
        """A permanent number per image, int64 from 0 up: the key of its randomness in every split and stage."""

    @property
    def id_range(self) -> range:
        """All possible ids, including those of missing images: random choices are made among them."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class."""

    @property
    def fingerprint(self) -> str:
        """A key of everything that pixels and labels depend on, for caches."""

    def image(self, index: int) -> np.ndarray:
        """Return the pixels, uint8 (height, width, 1 or 3), at the size that the model gets."""


class Example(NamedTuple):
    """One image with its labels and mask, or a collated batch of them.

    Examples:
        >>> example = Example(torch.zeros(3, 8, 8), 1, True, torch.zeros(8, 8, dtype=torch.bool), 7)
        >>> example.label, example.has_artifact
        (1, True)
    """

    image: Tensor  # float32, (channels, height, width), normalised
    label: Tensor | int
    has_artifact: Tensor | bool
    mask: Tensor  # bool, (height, width): the pixels that the artifact changed
    id: Tensor | int  # of the image in its source: the key of its randomness


class ImageDataset(Dataset[Example], ABC):
    """Examples in a fixed order; labels, ids and artifact labels are known without reading a pixel.

    A subclass sets the attributes below and implements :meth:`pixels`.
    """

    labels: np.ndarray  # int64
    has_artifact: np.ndarray  # bool
    ids: np.ndarray  # int64 from 0 up
    class_names: tuple[str, ...]
    transform: Normalize

    @cached_property
    def is_relabelled(self) -> np.ndarray:
        """Which labels differ from those of the source, bool; none by default.

        Such an image has the label of the biased class without belonging to it, so CAVs leave it out.
        """
        return np.zeros(len(self), dtype=bool)

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A key of everything that the examples depend on, for caches."""

    @property
    def pixel_fingerprint(self) -> str:
        """A key of everything that images and labels depend on, for trained models, which see no artifact labels."""
        return self.fingerprint

    @abstractmethod
    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and the artifact's mask, which is empty for an image without it."""

    def _copy_facts(self, dataset: ImageDataset, rows: np.ndarray | slice = slice(None)) -> None:
        """Take over labels, ids, class names and transform of another dataset, for some of its images."""
        self.labels, self.ids, self.has_artifact = dataset.labels[rows], dataset.ids[rows], dataset.has_artifact[rows]
        self.is_relabelled = dataset.is_relabelled[rows]
        self.class_names, self.transform = dataset.class_names, dataset.transform

    def batch(self, indices: Sequence[int] | np.ndarray) -> Example:
        """Return many examples as one collated batch."""
        return default_collate([self[int(index)] for index in indices])  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        image, mask = self.pixels(index)
        return Example(
            self.transform(image),
            int(self.labels[index]),
            bool(self.has_artifact[index]),
            torch.from_numpy(mask),
            int(self.ids[index]),
        )


@dataclass(frozen=True)
class Normalize:
    """Turn uint8 images (..., height, width, channels) into the float tensor that a model takes.

    Examples:
        >>> Normalize(mean=(0.5,) * 3, std=(0.5,) * 3)(np.zeros((2, 2, 3), np.uint8)).max()
        tensor(-1.)
    """

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __call__(self, image: np.ndarray) -> Tensor:
        """Scale to [0, 1], subtract the mean, divide by the standard deviation; channels first."""
        if image.shape[-1] != len(self.mean):
            raise DataError(
                f"An image of {image.shape[-1]} channels cannot be normalised by {len(self.mean)} means: "
                "give Normalize one mean and one std per channel."
            )
        pixels = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, -3))).float().div_(255)
        return pixels.sub_(torch.tensor(self.mean)[:, None, None]).div_(torch.tensor(self.std)[:, None, None])


IMAGENET = Normalize()
"""The normalisation that torchvision's pretrained models expect."""
