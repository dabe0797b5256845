"""What every artifact is: a way to change an image, and the pixels that it touched."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import Self

from hansfree.errors import DataError
from hansfree.registry import Registered

if TYPE_CHECKING:
    from hansfree.datasets.base import ImageSource


class Artifact(Registered, ABC):
    """One kind of artifact; its ``repr`` tells all its options, because caches are keyed by it."""

    kind = "artifact"
    localized: ClassVar[bool]
    """Whether the mask says where the artifact is; an unlocalised one touches the whole image."""
    needs_file: ClassVar[bool] = False
    """Whether it is made from a user's file, so that its name alone does not tell what it looks like."""

    @classmethod
    def fits_pictures(cls) -> bool:
        """Tell whether it can be put on a finished picture; others need a source that draws them."""
        return cls.insert is Artifact.insert

    @classmethod
    def for_pictures(cls) -> dict[str, type[Self]]:
        """Return the members that can be put on a finished picture, in order."""
        return {name: member for name, member in cls.members().items() if member.fits_pictures()}

    @classmethod
    def without_file(cls) -> dict[str, type[Self]]:
        """Return the members that need no file, in order."""
        return {name: member for name, member in cls.members().items() if not member.needs_file}

    @abstractmethod
    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a copy of ``image`` with the artifact, and the mask of the pixels it may have changed.

        Args:
            image: uint8, (height, width, 1 or 3); never changed.
            rng: the only source of randomness.
        """

    def insert(self, source: ImageSource, index: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Stamp one image of ``source``; the same (seed, sample id) gives the same artifact in every stage."""
        # The name joins the key: a source with the same seed draws its own images from other numbers.
        key = (seed, int(source.ids[index]), zlib.crc32(self.name.encode()))
        return self.stamp(source.image(index), np.random.default_rng(key))


def require_pixels(image: np.ndarray) -> None:
    """Refuse what is not a uint8 image with its channels last: other layouts would be stamped wrongly in silence."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3) or not image.size:
        raise DataError(
            "An artifact needs a uint8 image of shape (height, width, 1 or 3), "
            f"not {image.dtype} of shape {tuple(image.shape)}."
        )
