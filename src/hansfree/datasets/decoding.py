"""One picture file: its pixels as the model gets them, or one sentence that says why not."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from hansfree.errors import DataError

Channels = Literal[1, 3]
Resize = Literal["squash", "crop"]

_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"\0\0\0\0IEND\xaeB`\x82"}


class _UnusableError(ValueError):
    """A picture that is whole, but not one that a model could get."""


def decode(path: str | Path, *, size: int, resize: Resize, channels: Channels) -> np.ndarray:
    """Return the pixels, uint8 (size, size, channels); of a file with several pages the first.

    Transparency is dropped, not blended with a background that nobody chose. EXIF orientation is ignored, as by
    torchvision's loaders: pretrained models have seen these pixels. 16 bits are scaled to 8 over their whole range.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about tags that no pixel depends on
            with Image.open(path) as opened:
                picture = _resized(_as_rgb(opened), size, resize)
    except Exception as error:  # Pillow's formats raise almost anything for a damaged file
        raise DataError(f"{path} {why(error)}.") from error
    return np.array(picture if channels == 3 else picture.convert("L")).reshape(size, size, channels)


def in_colour(image: np.ndarray) -> np.ndarray:
    """Return an image (height, width, 1 or 3) with three channels: what shows or measures colours need not ask."""
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


def find_fault(path: str | Path) -> str | None:
    """Return what is wrong with a file, as the end of a sentence that starts with its path, or None.

    Cheap enough for every start: header, checksums where the format has them, and the mark that ends the format. Only
    a file without that mark is decoded, because some writers append bytes of their own.
    """
    try:
        if not os.path.getsize(path):
            return "is empty"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as opened:
                end = _ENDS.get(opened.format or "")
                opened.verify()
            if end is None or not _ends_with(path, end):
                with Image.open(path) as opened:
                    _as_rgb(opened)
    except Exception as error:  # Pillow's formats raise almost anything for a damaged file
        return why(error)
    return None


def why(error: Exception) -> str:
    """Return the end of the sentence that starts with the file's path."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    if isinstance(error, (IsADirectoryError, PermissionError)):
        return f"cannot be read ({error.strerror})"
    if isinstance(error, UnidentifiedImageError):
        return "is not a readable image (no known format)"
    if isinstance(error, Image.DecompressionBombError):
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # Pillow's guard, which it calls an error at twice its limit
        return f"is too large: it has more than {most:,} pixels"
    if isinstance(error, _UnusableError):
        return f"is not a readable image ({error})"
    said = " ".join(str(error).split()) or type(error).__name__
    return f"is not a readable image ({'truncated' if 'truncated' in said.lower() else f'damaged: {said}'})"


def _ends_with(path: str | Path, end: bytes) -> bool:
    with open(path, "rb") as file:
        file.seek(-len(end), os.SEEK_END)
        return file.read() == end


def _as_rgb(picture: Image.Image) -> Image.Image:
    """Return three channels of 8 bits."""
    if picture.mode.startswith("I"):  # 16-bit grey, which Pillow's own conversion would clip to white
        values = np.asarray(picture).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise _UnusableError("more than 16 bits per value")
        picture = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    elif picture.mode == "F":
        raise _UnusableError("decimal values instead of 8 or 16 bits")
    picture.info.pop("transparency", None)
    return picture.convert("RGB")


def _resized(picture: Image.Image, size: int, resize: Resize) -> Image.Image:
    """Scale bilinearly; Pillow widens its filter when it shrinks, which is torchvision's ``antialias=True``."""
    if resize == "squash":
        return picture.resize((size, size), Image.Resampling.BILINEAR)
    width, height = picture.size
    short = round(size * 256 / 224)
    # The long side rounded down and the corner rounded to even: torchvision's Resize and CenterCrop to the pixel.
    wide, high = max(short, int(short * width / height)), max(short, int(short * height / width))
    if wide * high > 2 * (Image.MAX_IMAGE_PIXELS or wide * high):
        raise _UnusableError(f"{width} x {height} pixels are too long and narrow to crop a square")
    left, top = round((wide - size) / 2), round((high - size) / 2)
    return picture.resize((wide, high), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
