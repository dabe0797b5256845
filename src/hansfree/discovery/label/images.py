"""Thumbnails and CAV heatmaps of the page."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hansfree.cavs import SignalCAV
from hansfree.data import decode
from hansfree.discovery.opening import UnlabelledImages
from hansfree.errors import DataError
from hansfree.evaluation.localisation import compute_cav_heatmaps

SIDE = 192  # pixels of a thumbnail: sharp at 96 on a screen of double density
_QUALITY = 85
_COARSE = 28  # relevance is shown in so many cells per side: single pixels of it are noise
_HOOKS = threading.Lock()  # the rules of LRP are hooks in one shared copy of the model
_AMBER = np.array([255, 176, 0], dtype=np.float64)  # amber on grey is safe for colour blindness


def check_inside(path: str, root: Path) -> None:
    """Refuse a file outside of the root, whatever the list names or a link points to."""
    folder = os.path.realpath(root)
    if os.path.commonpath([folder, os.path.realpath(path)]) != folder:
        raise DataError(
            f"{path} is not inside data.root, {folder}, and the page shows no other files. Copy the file, or set a "
            "root that holds all."
        )


def draw_thumbnail(opened: UnlabelledImages, row: int) -> np.ndarray:
    """Return an image, uint8 (SIDE, SIDE, channels), squashed or cropped as for the model."""
    check_inside(opened.paths[row], opened.run.data.root)  # again: a link may have changed
    source: Any = opened.images.source
    return decode(opened.paths[row], size=SIDE, resize=source.resize, channels=source.channels)


def draw_heatmap(opened: UnlabelledImages, row: int, cav: SignalCAV) -> np.ndarray:
    """Return an image in grey, with the positive relevance of a CAV in amber."""
    pixels = draw_thumbnail(opened, row)
    with _HOOKS:
        batch = opened.images.batch([row]).image
        relevance = compute_cav_heatmaps(opened.model, opened.layer, cav, batch)[0].detach().cpu().numpy()
    positive = Image.fromarray(np.maximum(relevance, 0).astype(np.float32))
    coarse = positive.resize((_COARSE, _COARSE), Image.Resampling.BOX)
    smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BILINEAR), dtype=np.float64)
    share = smooth / smooth.max() if smooth.max() > 0 else smooth
    grey = pixels.mean(axis=-1, keepdims=True) * 0.7
    mixed = grey * (1 - share[..., None]) + _AMBER * share[..., None]
    return np.asarray(np.clip(mixed.round(), 0, 255).astype(np.uint8))


def as_jpeg(pixels: np.ndarray) -> bytes:
    """Return pixels, uint8 (height, width, 1 or 3), as a JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
