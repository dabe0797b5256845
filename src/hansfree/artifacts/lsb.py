"""A hidden text: an artifact that nobody sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hansfree.artifacts.base import Artifact, require_pixels
from hansfree.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class LSB(Artifact, name="lsb"):
    """A text hidden in the least significant bits, next to invisible (paper, App. A: 3 bits).

    The text of random letters a-z, one ASCII byte each with the highest bit first, runs through the values in
    raster order, and fills one bit plane after another, each from its first value on. All letters start with
    the bits 011: where the width is a multiple of 8, that prefix falls on the same columns in every row and the
    low bits show vertical stripes.

    Args:
        bits: how many of the lowest bits of every value are overwritten, 1 to 7.
    """

    localized: ClassVar[bool] = False
    bits: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 1 <= self.bits <= 7:
            raise OptionError(f"LSB overwrites 1 to 7 whole bits, not {self.bits!r}.")

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Overwrite the low bits of every value with a message that is as long as they can hold."""
        require_pixels(image)
        letters = rng.integers(ord("a"), ord("z") + 1, size=(self.bits, -(-image.size // 8)), dtype=np.uint8)
        planes = np.unpackbits(letters, axis=1)[:, : image.size].reshape(self.bits, *image.shape)
        weights = (1 << np.arange(self.bits)).astype(np.uint8)
        message = np.tensordot(weights, planes, axes=1).astype(np.uint8)
        kept = np.uint8(0xFF << self.bits & 0xFF)
        return (image & kept) | message, np.ones(image.shape[:2], dtype=bool)
