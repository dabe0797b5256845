"""What a model must not use: each artifact puts one into an image and says which pixels it touched.

To add one, write a class with ``stamp`` and name it in its class line.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hansfree.errors import DataError, OptionError
from hansfree.registry import Registered

if TYPE_CHECKING:
    from hansfree.datasets.base import ImageSource

__all__ = ["LSB", "Artifact", "Brightness", "Plaster", "Timestamp"]


class Artifact(Registered, ABC):
    """One kind of artifact; its ``repr`` tells all its options, because caches are keyed by it."""

    kind = "artifact"
    localized: ClassVar[bool]
    """Whether the mask says where the artifact is; an unlocalised one touches the whole image."""

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


@dataclass(frozen=True)
class Timestamp(Artifact, name="timestamp"):
    """The date and time that a digital camera prints at the bottom right."""

    localized: ClassVar[bool] = True

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Print a random plausible moment in orange with a dark outline, so that it shows on any background."""
        _require_pixels(image)
        height, width, channels = image.shape
        year, month, day = rng.integers((2004, 1, 1), (2024, 13, 29))
        hour, minute = rng.integers((0, 0), (24, 60))
        fill, outline = _printed(f"{year}:{month:02}:{day:02}", f"{hour:02}:{minute:02}", width, height)
        orange = np.array((255, 150, 30)) if channels == 3 else np.array((255,))
        pixels = image * (1 - outline) + 20 * outline
        pixels = pixels * (1 - fill) + orange * fill
        return np.rint(pixels).astype(np.uint8), ((fill > 0) | (outline > 0))[..., 0]


@dataclass(frozen=True, kw_only=True)
class Brightness(Artifact, name="brightness"):
    """A brighter exposure (paper, App. A: alpha = 0.3).

    Args:
        alpha: how far every value moves towards white, in (0, 1].
    """

    localized: ClassVar[bool] = False
    alpha: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise OptionError(f"Brightness needs an alpha above 0 and up to 1, not {self.alpha!r}.")

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Map every value ``v`` to ``min(255, (1 - alpha) v + alpha 255)``; nothing is random."""
        _require_pixels(image)
        table = np.minimum(255, (1 - self.alpha) * np.arange(256) + self.alpha * 255)
        return np.rint(table).astype(np.uint8)[image], np.ones(image.shape[:2], dtype=bool)


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
        _require_pixels(image)
        letters = rng.integers(ord("a"), ord("z") + 1, size=(self.bits, -(-image.size // 8)), dtype=np.uint8)
        planes = np.unpackbits(letters, axis=1)[:, : image.size].reshape(self.bits, *image.shape)
        weights = (1 << np.arange(self.bits)).astype(np.uint8)
        message = np.tensordot(weights, planes, axes=1).astype(np.uint8)
        kept = np.uint8(0xFF << self.bits & 0xFF)
        return (image & kept) | message, np.ones(image.shape[:2], dtype=bool)


@runtime_checkable
class _DrawsPlaster(Protocol):
    """A source that can draw a plaster into its own scenes."""

    def render(self, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Plaster(Artifact, name="plaster"):
    """A coloured plaster on the skin, drawn by the source itself under the light of the scene.

    It stands for natural artifacts, which are in the scene and not on top of the picture (the paper's collars).
    """

    localized: ClassVar[bool] = True

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Refuse: a finished picture no longer tells where skin, lesion and light are."""
        raise DataError("A plaster cannot be stamped on a finished picture: use insert with a source that draws it.")

    def insert(self, source: ImageSource, index: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Ask the source for the same scene with a plaster; the source's own seed decides how it looks."""
        if not isinstance(source, _DrawsPlaster):
            raise DataError(
                f"{type(source).__name__} cannot draw a plaster: it has no method render(index, plaster=True). "
                "SyntheticLesions has one."
            )
        return source.render(index, plaster=True)


def _require_pixels(image: np.ndarray) -> None:
    """Refuse what is not a uint8 image with its channels last: other layouts would be stamped wrongly in silence."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3) or not image.size:
        raise DataError(
            "An artifact needs a uint8 image of shape (height, width, 1 or 3), "
            f"not {image.dtype} of shape {tuple(image.shape)}."
        )


def _printed(date: str, time: str, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how far letters and outline cover each pixel, (height, width, 1) in [0, 1]; on two lines where narrow."""
    wanted = max(min(width, height) / 16, 8.0)  # smaller letters than 8 px are a smear
    margin = max(1, round(0.03 * min(width, height)))
    between = " " if wanted * _ems(" ")[0] <= width - 2 * margin else "\n"
    text = f"{date}{between}{time}"
    wide, high = _ems(between)
    size = max(1.0, min(wanted, (width - 2 * margin) / wide, (height - 2 * margin) / high))
    stroke = max(1, round(size / 16))
    font = _font(round(size, 2))
    layers = []
    for stroke_width in (0, stroke):
        canvas = Image.new("L", (width, height))
        draw = ImageDraw.Draw(canvas)
        _, _, right, bottom = draw.multiline_textbbox((0, 0), text, font=font, spacing=size / 8, align="right")
        corner = (width - margin - right, height - margin - bottom)
        draw.multiline_text(
            corner, text, fill=255, font=font, spacing=size / 8, align="right", stroke_width=stroke_width
        )
        layers.append(np.asarray(canvas, dtype=np.float64)[..., None] / 255)
    fill, outline = layers
    return fill, outline


@lru_cache(maxsize=64)
def _font(size: float) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise DataError("This Pillow has no scalable font (it was built without FreeType): install Pillow's own wheel.")
    return font


@lru_cache(maxsize=2)
def _ems(between: str) -> tuple[float, float]:
    """Return the width and height of a date and time in units of the font size; all digits are about as wide as 0."""
    text = f"0000:00:00{between}00:00"
    draw = ImageDraw.Draw(Image.new("L", (1, 1)))
    left, top, right, bottom = draw.multiline_textbbox((0, 0), text, font=_font(100.0), spacing=100 / 8)
    return (right - left) / 100, (bottom - top) / 100
