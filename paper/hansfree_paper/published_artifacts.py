"""Artifacts of the published code, where it differs from the paper's text."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hansfree.data import Timestamp
from hansfree.data.artifacts import require_pixels

LSB_TEXT = (Path(__file__).parent / "lsb.txt").read_text(encoding="ascii")
"""The message that the published code hides in the lowest bits."""


class PublishedTimestamp(Timestamp):
    """The timestamp of the paper's published code, drawn for 224 x 224 pixels and scaled to other sizes.

    Corner, shift, size, rotation and colour are random. One colour of eight is nearly black, and vanishes on dark
    ground. The mask is the bounding box of the text. The registered `Timestamp` is seen on any ground.
    """

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw in the order of the published code, without its second colour, which it never uses."""
        require_pixels(image)
        moment = datetime(2020, 1, 1) + timedelta(seconds=int(rng.integers(_SECONDS)))
        colour = tuple(int(np.clip(rng.choice([10, 245]) + int(rng.normal(0, 5)), 0, 255)) for _ in range(3))
        low, (right, bottom) = _PADDING + 5, (_DRAWN - 100 - _PADDING, _DRAWN - 20 - _PADDING)
        corners = [(low, low), (low, bottom - 5), (right - 5, low), (right - 5, bottom - 5)]
        place = np.array(corners[int(rng.choice(4))]) + rng.normal(0, 2, 2).astype(int)
        place = np.clip(place, _PADDING, (right, bottom))
        canvas = int(rng.choice(np.arange(_DRAWN - 25, _DRAWN + 25)))
        x, y = (int(coordinate * canvas / _DRAWN) for coordinate in place)
        angle = float(rng.choice(np.arange(-30, 31) / 10))
        return print_text(image, str(moment), (x, y), canvas=canvas, colour=colour, angle=angle)


_SECONDS = 1095 * 24 * 60 * 60  # of the years 2020 to 2022, but the last day
_DRAWN, _PADDING = 224, 15  # pixels


def print_text(
    image: np.ndarray, text: str, place: tuple[int, int], *, canvas: int, colour: tuple[int, ...], angle: float
) -> tuple[np.ndarray, np.ndarray]:
    """Print a text on a transparent square of ``canvas`` pixels, turn it, and lay it over the whole image."""
    height, width, channels = image.shape
    layer = Image.new("RGBA", (canvas, canvas))
    ImageDraw.Draw(layer).text(place, text, fill=colour, font=ImageFont.load_default(10.0))
    layer = layer.rotate(angle).resize((width, height), Image.Resampling.BILINEAR)
    printed = Image.fromarray(image if channels == 3 else image[..., 0])
    printed.paste(layer.convert(printed.mode), None, layer.getchannel("A"))
    mask = np.zeros((height, width), dtype=bool)
    if (box := layer.getbbox()) is not None:
        mask[box[1] : box[3], box[0] : box[2]] = True
    return np.asarray(printed).reshape(image.shape).copy(), mask
