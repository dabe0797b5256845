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

from hansfree.cavs import SignalCAV
from hansfree.data import Channels, ImageDataset, Resize, decode
from hansfree.errors import DataError
from hansfree.evaluation.localisation import compute_cav_heatmaps

SIDE = 192  # pixels of a thumbnail: sharp at 96 on a screen of double density
_QUALITY = 85
_COARSE = 28  # relevance is shown in so many cells per side: single pixels of it are noise
_HOOKS = threading.Lock()  # the rules of LRP are hooks in one shared copy of the model
_AMBER = np.array([255, 176, 0], dtype=np.float64)  # amber on grey is safe for colour blindness


class Thumbnails:
    """Thumbnails of image files, which show the model's input: squashed or cropped as for the model.

    Args:
        root: No file outside it is read, whatever the list names or a link points to.
    """

    def __init__(self, paths: Sequence[str], *, root: Path, resize: Resize, channels: Channels) -> None:
        self._paths, self._root = paths, os.path.realpath(root)
        self._resize, self._channels = resize, channels
        for path in paths:
            self._check(path)

    def thumbnail(self, image: int) -> bytes:
        """Return one image as JPEG."""
        return as_jpeg(self.pixels(image))

    def pixels(self, image: int) -> np.ndarray:
        """Return one image, uint8 (SIDE, SIDE, channels)."""
        self._check(self._paths[image])  # again: a link may have changed
        return decode(self._paths[image], size=SIDE, resize=self._resize, channels=self._channels)

    def _check(self, path: str) -> None:
        if os.path.commonpath([self._root, os.path.realpath(path)]) != self._root:
            raise DataError(
                f"{path} is not inside data.root, {self._root}, and the page shows no other files. Copy the file, or "
                "set a root that holds all."
            )


def draw_heatmap(
    model: nn.Module, layer: str, images: ImageDataset, row: int, *, cav: SignalCAV, pixels: np.ndarray
) -> bytes:
    """Return an image in grey as JPEG, with the positive relevance of a CAV in amber."""
    with _HOOKS:
        batch = images.batch([row]).image
        relevance = compute_cav_heatmaps(model, layer, cav, batch)[0].detach().cpu().numpy()
    return as_jpeg(_overlay(pixels, relevance))


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
