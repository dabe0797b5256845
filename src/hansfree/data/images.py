"""Decode image files, and check all of a folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from hansfree._internal.files import hash_file
from hansfree._internal.hashing import fingerprint
from hansfree._internal.progress import Progress, silent
from hansfree.errors import DataError, OptionError, check_choice

MAX_SIZE = 2**14  # pixels a side: no model takes more, and larger tensors overflow instead of running out of memory
Channels = Literal[1, 3]
Resize = Literal["squash", "crop"]
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"\0\0\0\0IEND\xaeB`\x82"}


class _UnusableError(ValueError):
    """An intact image that cannot be a model's input."""


def decode(path: str | Path, *, size: int, resize: Resize, channels: Channels) -> np.ndarray:
    """Return the pixels, uint8 (size, size, channels); of a file with several pages the first.

    Transparency is dropped, not blended with an arbitrary background. EXIF orientation is ignored, as by torchvision's
    loaders, whose pixels pretrained models were trained on. 16 bits are scaled to 8 over the whole range.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about metadata
            with Image.open(path) as opened:
                picture = _resized(_as_rgb(opened), size, resize)
    except Exception as error:  # Pillow's formats raise almost anything for a damaged file
        raise DataError(f"{path} {describe_fault(error)}.") from error
    return np.array(picture if channels == 3 else picture.convert("L")).reshape(size, size, channels)


def to_rgb(image: np.ndarray) -> np.ndarray:
    """Return an image (height, width, 1 or 3) with three channels."""
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


def find_fault(path: str | Path) -> str | None:
    """Return what is wrong with a file, as the end of a sentence that starts with its path, or None.

    Checks header, checksums and end marker; only a file without that marker is decoded.
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
        return describe_fault(error)
    return None


def describe_fault(error: Exception) -> str:
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
    message = " ".join(str(error).split()) or type(error).__name__
    return f"is not a readable image ({'truncated' if 'truncated' in message.lower() else f'damaged: {message}'})"


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


class ImageFiles:
    """Image files as a source: uint8, ``size`` x ``size``; everything that Pillow reads.

    Args:
        ids: Permanent number of each image, from 0 up: the row in the whole table, where some files are left out.
        id_range: all ids of the whole table; None is up to the last of ``ids``.
        resize: ``squash`` scales both sides to ``size``; ``crop`` scales the shorter one to ``size * 256 / 224`` and
            cuts out the centre, as torchvision's pretrained models expect.
        channels: 3, or 1 for models of grey images.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        labels: Sequence[int] | np.ndarray,
        *,
        class_names: Sequence[str],
        size: int,
        ids: np.ndarray | None = None,
        id_range: range | None = None,
        resize: Resize = "squash",
        channels: Channels = 3,
    ) -> None:
        check_choice("resize", resize, Resize)
        check_choice("channels", channels, Channels)
        if not 1 <= size <= MAX_SIZE:
            raise OptionError(f"The side of an image is 1 to {MAX_SIZE} pixels, not {size}.")
        self.paths = [os.fspath(path) for path in paths]  # not Path: a million of them take a gigabyte
        self.labels = np.asarray(labels, dtype=np.int64)
        self.ids = np.arange(len(self.paths)) if ids is None else np.asarray(ids, dtype=np.int64)
        self.id_range = range(int(self.ids.max(initial=-1)) + 1) if id_range is None else id_range
        self.class_names = tuple(class_names)
        self.size, self.resize, self.channels = size, resize, channels
        if self.labels.shape != (len(self.paths),) or self.ids.shape != self.labels.shape:
            raise DataError(
                f"{len(self.paths)} files need as many labels and ids, not {self.labels.shape} and {self.ids.shape}."
            )
        if np.any((self.labels < 0) | (self.labels >= len(self.class_names))):
            raise DataError(f"Labels run from 0 to {len(self.class_names) - 1}, but there is {self.labels.max()}.")

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def fingerprint(self) -> str:
        """A key of names, sizes and modification times of all files, labels and options; no pixel is read.

        The folder is left out, so that a dataset can be moved.
        """
        facts = np.empty((len(self), 2), dtype=np.int64)
        for row, path in enumerate(self.paths):
            try:
                found = os.stat(path)
            except OSError as error:
                raise DataError(f"{path} {describe_fault(error)}.") from error
            facts[row] = found.st_size, found.st_mtime_ns
        # Names on disk need not be valid UTF-8; those that are stay as they are.
        names = os.fsencode("\n".join(map(os.path.basename, self.paths))).decode("utf-8", "backslashreplace")
        content = fingerprint(names, facts, self.labels, self.ids, repr(self.id_range), "\n".join(self.class_names))
        channels = "" if self.channels == 3 else f", channels={self.channels}"
        return f"ImageFiles({content}, size={self.size}, resize={self.resize!r}{channels})"

    def image(self, index: int) -> np.ndarray:
        """Read one file; an unreadable one is a `DataError` with its path."""
        return decode(self.paths[index], size=self.size, resize=self.resize, channels=self.channels)


def check_images(
    paths: Sequence[str | Path], *, skip_bad: bool, option: str = "--skip-bad", progress: Progress = silent
) -> tuple[np.ndarray, list[str]]:
    """Return the indices of the readable files, and a sentence per file that is missing, empty, damaged or no image.

    Args:
        skip_bad: Leave out bad files; otherwise the first is an error.
        option: What a user writes to leave them out.
    """
    good: list[int] = []
    skipped: list[str] = []
    for index, path in enumerate(progress(paths, total=len(paths), label="Checking the images")):
        fault = find_fault(path)
        if fault is None:
            good.append(index)
        elif skip_bad:
            skipped.append(f"{path} {fault}.")
        else:
            raise DataError(f"{path} {fault}: restore the file, or leave out such images with {option}.")
    if skipped and not good:
        raise DataError(f"None of the {len(paths)} images can be used: {skipped[0]}")
    return np.array(good, dtype=np.int64), skipped


def find_copies(paths: Sequence[str | Path]) -> list[list[int]]:
    """Return groups of files with the same content, as indices; only files of the same size are read."""
    groups = [list(range(len(paths)))]
    for key in (os.path.getsize, lambda path: hash_file(Path(path))):
        groups = [same for group in groups for same in find_equal({index: key(paths[index]) for index in group})]
    return groups


def find_equal(keys: Mapping[int, object]) -> list[list[int]]:
    """Return groups of indices with the same key."""
    by_key: dict[object, list[int]] = {}
    for index, key in keys.items():
        by_key.setdefault(key, []).append(index)
    return [same for same in by_key.values() if len(same) > 1]
