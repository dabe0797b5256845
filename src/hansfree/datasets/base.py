"""What every dataset of hansfree yields, and how pixels become a model's input."""

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
    """Images without artifacts, and their classes: all that a new dataset has to write."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> np.ndarray:
        """The class of each image, int64; known without reading a pixel."""

    @property
    def ids(self) -> np.ndarray:
        """What names each image for good, int64 from 0 up: the key of its randomness in every split and stage."""

    @property
    def id_range(self) -> range:
        """All ids that could be here, those of images that were left out too: what is drawn is drawn among them."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class."""

    @property
    def fingerprint(self) -> str:
        """Everything that pixels and labels depend on: caches are keyed by it."""

    def image(self, index: int) -> np.ndarray:
        """Return the pixels, uint8 (height, width, 1 or 3), at the size that the model gets."""


class Example(NamedTuple):
    """One image with what is known about it; collated by a ``DataLoader``, a batch of them."""

    image: Tensor  # float32, (channels, height, width), normalised
    label: Tensor | int
    has_artifact: Tensor | bool
    mask: Tensor  # bool, (height, width): the pixels that the artifact changed
    id: Tensor | int  # which image of the source this is: keys its randomness


class ExampleSet(Dataset[Example], ABC):
    """Examples in a fixed order, of which everything but the pixels is known at once.

    A member sets the attributes below and writes :meth:`pixels`.
    """

    labels: np.ndarray  # int64
    has_artifact: np.ndarray  # bool
    ids: np.ndarray  # int64 from 0 up
    class_names: tuple[str, ...]
    transform: Normalize

    @cached_property
    def is_relabelled(self) -> np.ndarray:
        """Which labels are not those of the source, bool; none, where a member does not set it.

        Such an image is called by the biased class without being of it, so no CAV should learn from it.
        """
        return np.zeros(len(self), dtype=bool)

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Everything that the examples depend on: caches are keyed by it."""

    @property
    def pictures(self) -> str:
        """Everything that images and labels depend on: models are keyed by it, for training sees no artifact bit."""
        return self.fingerprint

    @abstractmethod
    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and the artifact's mask, which is empty for an image without it."""

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
    """Turn uint8 images (..., height, width, channels) into the float tensor that a model takes."""

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

_OTHERS = {"efficientnet_lite0": Normalize(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)}


def normalisation_for(model: str) -> Normalize:
    """Return how a model's pretrained weights expect their images."""
    return _OTHERS.get(model, IMAGENET)
