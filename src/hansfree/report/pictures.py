"""Images and heatmaps as the page holds them: small files in base64."""

from __future__ import annotations

import base64
import io

import numpy as np
from matplotlib import colormaps
from PIL import Image

from hansfree.datasets.decoding import in_colour
from hansfree.report.style import GREEN

_MOST_SIDE = 128  # pixels: the page shows them at about this size, and holds many
_QUALITY = 75  # of JPEG: hundreds of them have to fit
_OUTLINE = tuple(bytes.fromhex(GREEN[1:]))  # which neither end of the colour scale has
_LAST = 254  # place of the scale's upper end in the palette; the outline has the next one
_COLOURS = colormaps["RdBu_r"](np.linspace(0, 1, _LAST + 1))[:, :3]
_PALETTE = [*np.round(255 * _COLOURS).astype(int).ravel().tolist(), *_OUTLINE]


def picture_of(image: np.ndarray) -> str:
    """Return an image, uint8 (height, width, 1 or 3), as a data address."""
    picture = Image.fromarray(in_colour(image))
    return _address(_shrunk(picture, Image.Resampling.BOX), "JPEG", quality=_QUALITY)


def heatmap_of(relevance: np.ndarray, mask: np.ndarray, *, limit: float) -> str:
    """Return a heatmap as a data address: red speaks for, blue against; ``limit`` is the end of the colour scale."""
    small = np.asarray(_shrunk(Image.fromarray(relevance.astype(np.float32)), Image.Resampling.BOX))
    shares = np.clip((small / limit + 1) / 2, 0, 1)
    places = np.round(_LAST * shares).astype(np.uint8)
    places[_outline(mask)] = _LAST + 1
    picture = Image.fromarray(places)
    picture.putpalette(_PALETTE)
    return _address(picture, "PNG", optimize=True)


def data_address(content: bytes, kind: str) -> str:
    """Return a file of an image as an address that holds it; ``kind`` is its format, such as PNG."""
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode('ascii')}"


def _outline(mask: np.ndarray) -> np.ndarray:
    """Return the rim of the artifact; one that fills the image has none."""
    mask = np.asarray(_shrunk(Image.fromarray(mask), Image.Resampling.NEAREST))
    if mask.all():
        return np.zeros_like(mask)
    wide = np.pad(mask, 1)
    inner = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    rim: np.ndarray = mask & ~inner
    return rim


def _shrunk(picture: Image.Image, resampling: Image.Resampling) -> Image.Image:
    picture.thumbnail((_MOST_SIDE, _MOST_SIDE), resampling)  # never larger than it is
    return picture


def _address(picture: Image.Image, kind: str, **options: object) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return data_address(buffer.getvalue(), kind)
