"""Simple properties of images that a model could use without looking at what is shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from hansfree.datasets.base import ExampleSet
from hansfree.datasets.decoding import in_colour
from hansfree.errors import DataError, nearest
from hansfree.progress import Progress, silent

Words = tuple[str, str]  # images with more of a property "are ...", and those with less

_CORNER, _FRAME = 8, 16  # parts of a side: how far a corner and the border reach in
_LEAST_SIDE = 3
_FLAT = 1e-6  # variance of an image without contrast
_LEAST_ROOM = 8.0  # of 255: nearer to black or white, what is left is noise
_WHITE, _BLACK = 250, 5  # of 255
_LUMA = np.array([0.299, 0.587, 0.114])
_QUALITY_50 = 57.625  # mean of the standard luminance table, which quality 50 stands for

PIXEL_WORDS: dict[str, Words] = {
    "brightness": ("brighter", "darker"),
    "contrast": ("richer in contrast", "poorer in contrast"),
    "saturation": ("more colourful", "greyer"),
    "red cast": ("redder", "less red"),
    "blue cast": ("bluer", "less blue"),
    "sharpness": ("sharper", "more blurred"),
    "corner brightness": ("lighter in the corners", "darker in the corners"),
    "border brightness": ("lighter at the border", "darker at the border"),
    "corner detail": ("busier in a corner", "quieter in the corners"),
    "corner colour": ("more colourful in a corner", "greyer in the corners"),
    "white share": ("richer in white", "poorer in white"),
    "black share": ("richer in black", "poorer in black"),
}
FILE_WORDS: dict[str, Words] = {
    "width": ("wider", "narrower"),
    "height": ("taller", "less tall"),
    "aspect": ("wider for their height", "taller for their width"),
    "bytes per pixel": ("less compressed", "more compressed"),
    "jpeg quality": ("of higher JPEG quality", "of lower JPEG quality"),
}
WORDS = {**PIXEL_WORDS, **FILE_WORDS}


@dataclass(frozen=True, eq=False)
class Measurements:
    """A table of properties, one row per image; NaN where an image does not have one."""

    names: tuple[str, ...]
    values: npt.NDArray[np.float64]  # (images, properties)

    def __post_init__(self) -> None:
        """Refuse a table that does not have a column per name, or names that have no words."""
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise DataError(f"{len(self.names)} properties need as many columns, not {self.values.shape}.")
        for name in self.names:
            if name not in WORDS:
                raise DataError(f"There is no property {name!r}.{nearest(name, WORDS)} Known: {', '.join(WORDS)}.")

    def __len__(self) -> int:
        return len(self.values)


def measure_images(
    images: ExampleSet, *, paths: Sequence[str] | None = None, progress: Progress = silent
) -> Measurements:
    """Measure every image as the model sees it, and its file as it lies on disk.

    Args:
        paths: of the original files, one per image; None where the images never were files.
    """
    if paths is not None and len(paths) != len(images):
        raise DataError(f"{len(images)} images need as many paths, not {len(paths)}.")
    names = (*PIXEL_WORDS, *(FILE_WORDS if paths is not None else ()))
    values = np.empty((len(images), len(names)))
    for row in progress(range(len(images)), total=len(images), label="measuring images"):
        found = measure_pixels(images.pixels(row)[0])
        if paths is not None:
            found |= measure_file(paths[row])
        values[row] = [found[name] for name in names]
    return Measurements(names, values)


def measure_pixels(image: npt.NDArray[np.uint8]) -> dict[str, float]:
    """Return the properties of one uint8 image (height, width, 1 or 3), of 3 x 3 pixels or more.

    Contrast, colours and corners are shares of the room that the brightness leaves up to white or down to black. A
    brighter exposure takes the same part of all of them away; measured as they are, they would all seem odd, and often
    odder than the brightness.
    """
    if image.ndim != 3 or min(image.shape[:2]) < _LEAST_SIDE:
        raise DataError(f"Properties need images of {_LEAST_SIDE} x {_LEAST_SIDE} pixels or more, not {image.shape}.")
    colours = in_colour(image)
    values = colours.astype(np.float64)
    light = values @ _LUMA
    room = max(min(light.mean(), 255 - light.mean()), _LEAST_ROOM)
    red, green, blue = values.mean(axis=(0, 1))
    chroma = values.max(axis=2) - values.min(axis=2)
    frame = _frame(light.shape)
    curvature = 4 * light[1:-1, 1:-1] - light[:-2, 1:-1] - light[2:, 1:-1] - light[1:-1, :-2] - light[1:-1, 2:]
    return {
        "brightness": float(light.mean()),
        "contrast": float(light.std() / room),
        "saturation": float(chroma.mean() / room),
        "red cast": float((red - (green + blue) / 2) / room),
        "blue cast": float((blue - (red + green) / 2) / room),
        # Relative to the contrast: a paler image is not a more blurred one.
        "sharpness": float(curvature.var() / max(light.var(), _FLAT)),
        "corner brightness": float((np.mean(_in_corners(light, np.mean)) - light.mean()) / room),
        "border brightness": float((light[frame].mean() - light[~frame].mean()) / room),
        "corner detail": float(max(_in_corners(light, np.std)) / room),
        "corner colour": float(max(_in_corners(chroma, np.mean)) / room),
        "white share": float((light >= _WHITE).mean()),
        "black share": float((light <= _BLACK).mean()),
    }


def measure_file(path: str) -> dict[str, float]:
    """Return the properties of a file; its pixels are not decoded."""
    try:
        size = os.path.getsize(path)
        with Image.open(path) as picture:
            width, height = picture.size
            tables: dict[int, Sequence[int]] = getattr(picture, "quantization", None) or {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an image ({error}).") from error
    return {
        "width": width,
        "height": height,
        "aspect": width / height,
        # A file without loss is as large as its pixels make it, and they are measured already.
        "bytes per pixel": size / (width * height) if 0 in tables else np.nan,
        "jpeg quality": _jpeg_quality(tables[0]) if 0 in tables else np.nan,
    }


def _jpeg_quality(table: Sequence[int]) -> float:
    """Return the quality, 1 to 100, that libjpeg's scale gives a luminance table."""
    scale = 100 * float(np.mean(table)) / _QUALITY_50
    return float(np.clip(100 - scale / 2 if scale <= 100 else 5000 / scale, 1, 100))


def _in_corners(
    plane: npt.NDArray[np.float64], measure: Callable[[npt.NDArray[np.float64]], np.floating]
) -> list[float]:
    rows, columns = (max(1, side // _CORNER) for side in plane.shape)
    ends = [(slice(rows), slice(columns)), (slice(rows), slice(-columns, None))]
    ends += [(slice(-rows, None), columns_) for _, columns_ in ends]
    return [float(measure(plane[corner])) for corner in ends]


def _frame(shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return which pixels lie at the border."""
    rows, columns = (max(1, side // _FRAME) for side in shape)
    frame = np.ones(shape, dtype=bool)
    frame[rows:-rows, columns:-columns] = False
    return frame
