"""The date and time that a camera prints into its pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hansfree.artifacts.base import Artifact, require_pixels
from hansfree.errors import DataError


@dataclass(frozen=True)
class Timestamp(Artifact, name="timestamp"):
    """The date and time that a digital camera prints at the bottom right."""

    localized: ClassVar[bool] = True

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Print a random plausible moment in orange with a dark outline, so that it shows on any background."""
        require_pixels(image)
        height, width, channels = image.shape
        year, month, day = rng.integers((2004, 1, 1), (2024, 13, 29))
        hour, minute = rng.integers((0, 0), (24, 60))
        fill, outline = _printed(f"{year}:{month:02}:{day:02}", f"{hour:02}:{minute:02}", width, height)
        orange = np.array((255, 150, 30)) if channels == 3 else np.array((255,))
        pixels = image * (1 - outline) + 20 * outline
        pixels = pixels * (1 - fill) + orange * fill
        return np.rint(pixels).astype(np.uint8), ((fill > 0) | (outline > 0))[..., 0]


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
