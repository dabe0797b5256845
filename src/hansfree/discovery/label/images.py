"""Thumbnails and CAV heatmaps of the page."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

from hansfree._internal.files import written_atomically
from hansfree._internal.hashing import fingerprint
from hansfree.cavs import SignalCAV
from hansfree.data import Channels, ImageDataset, Resize, decode, describe_fault
from hansfree.errors import DataError
from hansfree.evaluation.localisation import compute_cav_heatmaps

SIDE = 192  # pixels of a thumbnail: sharp at 96 on a screen of double density
_QUALITY = 85
_COARSE = 28  # relevance is shown in so many cells per side: single pixels of it are noise
_AMBER = np.array([255, 176, 0], dtype=np.float64)  # amber on grey is safe for colour blindness


class Thumbnails:
    """Thumbnails of image files, made on first use and cached in a folder.

    A thumbnail shows the model's input: squashed or cropped as for the model.

    Args:
        root: No file outside it is read, whatever the list names or a link points to.
    """

    def __init__(self, paths: Sequence[str], *, root: Path, folder: Path, resize: Resize, channels: Channels) -> None:
        self._paths, self._root, self._folder = paths, os.path.realpath(root), folder
        self._resize, self._channels = resize, channels
        for path in paths:
            self._check(path)

    def thumbnail(self, image: int) -> bytes:
        """Return one image as JPEG."""
        path = self._paths[image]
        self._check(path)  # again: a link may have changed
        try:
            facts = os.stat(path)
        except OSError as error:  # deleted while the page is open
            raise DataError(f"{path} {describe_fault(error)}.") from error
        key = fingerprint(os.path.realpath(path), str(facts.st_size), str(facts.st_mtime_ns), self._resize)
        kept = self._folder / f"{key}.jpg"
        content = kept.read_bytes() if kept.exists() else b""
        if not content:  # empty after a power loss: not written durably
            content = as_jpeg(self.pixels(image))
            with written_atomically(kept, durable=False) as temporary:
                temporary.write_bytes(content)
        return content

    def pixels(self, image: int) -> np.ndarray:
        """Return one image, uint8 (SIDE, SIDE, channels)."""
        return decode(self._paths[image], size=SIDE, resize=self._resize, channels=self._channels)

    def _check(self, path: str) -> None:
        if os.path.commonpath([self._root, os.path.realpath(path)]) != self._root:
            raise DataError(
                f"{path} is not inside data.root, {self._root}, and the page shows no other files. Copy the file, or "
                "set a root that holds all."
            )


class Heatmaps:
    """Heatmaps of the CAV of the labels; computed one at a time, not cached."""

    def __init__(self, model: nn.Module, layer: str, images: ImageDataset, thumbnails: Thumbnails) -> None:
        self._model, self._layer, self._images, self._thumbnails = model, layer, images, thumbnails
        self._lock = threading.Lock()  # the rules of LRP are hooks in one shared copy of the model

    def show(self, image: int, cav: SignalCAV) -> bytes:
        """Return the image in grey as JPEG, with positive relevance in amber."""
        with self._lock:
            batch = self._images.batch([image]).image
            relevance = compute_cav_heatmaps(self._model, self._layer, cav, batch)[0].detach().cpu().numpy()
        return as_jpeg(_overlay(self._thumbnails.pixels(image), relevance))


def as_jpeg(pixels: np.ndarray) -> bytes:
    """Return pixels, uint8 (height, width, 1 or 3), as a JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def _overlay(pixels: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[:2]
    positive = Image.fromarray(np.maximum(relevance, 0).astype(np.float32))
    coarse = positive.resize((_COARSE, _COARSE), Image.Resampling.BOX)
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float64)
    share = smooth / smooth.max() if smooth.max() > 0 else smooth
    grey = pixels.mean(axis=-1, keepdims=True) * 0.7
    mixed = grey * (1 - share[..., None]) + _AMBER * share[..., None]
    overlaid: np.ndarray = np.clip(mixed.round(), 0, 255).astype(np.uint8)
    return overlaid
