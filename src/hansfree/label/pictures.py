"""The pictures of the page: thumbnails, and where the CAV looks in them."""

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
from hansfree.datasets.base import ExampleSet
from hansfree.datasets.images import Channels, Resize, decode, why
from hansfree.errors import DataError
from hansfree.heatmaps import compute_cav_heatmaps

SIDE = 192  # pixels of a thumbnail: sharp at 96 on a screen of double density
_QUALITY = 85
_COARSE = 28  # relevance is shown in so many cells per side: single pixels of it are noise
_GLOW = np.array([255, 176, 0], dtype=np.float64)  # amber on grey is told apart with any eyes


class Pictures:
    """Thumbnails of image files, made when first asked for and kept in a folder.

    A thumbnail shows what the model gets: a picture that is squashed or cropped for the model is so here, too.

    Args:
        root: nothing outside of it is read, whatever the list says or a link points to.
    """

    def __init__(self, paths: Sequence[str], *, root: Path, folder: Path, resize: Resize, channels: Channels) -> None:
        self._paths, self._root, self._folder = paths, os.path.realpath(root), folder
        self._resize, self._channels = resize, channels
        for path in paths:
            self._check(path)

    def thumbnail(self, image: int) -> bytes:
        """Return one picture as JPEG."""
        path = self._paths[image]
        self._check(path)  # again: a link may lead elsewhere by now
        try:
            facts = os.stat(path)
        except OSError as error:  # deleted while the page is open
            raise DataError(f"{path} {why(error)}.") from error
        key = fingerprint(os.path.realpath(path), str(facts.st_size), str(facts.st_mtime_ns), self._resize)
        kept = self._folder / f"{key}.jpg"
        content = kept.read_bytes() if kept.exists() else b""
        if not content:  # empty after a loss of power, for nobody waits for the disk here
            content = as_jpeg(self.pixels(image))
            with written_atomically(kept, durable=False) as temporary:
                temporary.write_bytes(content)
        return content

    def pixels(self, image: int) -> np.ndarray:
        """Return one picture, uint8 (SIDE, SIDE, channels)."""
        return decode(self._paths[image], size=SIDE, resize=self._resize, channels=self._channels)

    def _check(self, path: str) -> None:
        if os.path.commonpath([self._root, os.path.realpath(path)]) != self._root:
            raise DataError(
                f"{path} is not inside of data.root, {self._root}. The page shows nothing that lies elsewhere: copy "
                "the file, or give a root that holds all."
            )


class Heatmaps:
    """Where the direction between marked images shows in a picture; one is computed at a time, and none is kept."""

    def __init__(self, model: nn.Module, layer: str, images: ExampleSet, pictures: Pictures) -> None:
        self._model, self._layer, self._images, self._pictures = model, layer, images, pictures
        self._lock = threading.Lock()  # the rules of LRP are hooks in one shared copy of the model

    def show(self, image: int, cav: SignalCAV) -> bytes:
        """Return the picture in grey as JPEG, glowing where it speaks for the artifact."""
        with self._lock:
            batch = self._images.batch([image]).image
            relevance = compute_cav_heatmaps(self._model, self._layer, cav, batch)[0].detach().cpu().numpy()
        return as_jpeg(_glowing(self._pictures.pixels(image), relevance))


def as_jpeg(pixels: np.ndarray) -> bytes:
    """Return pixels, uint8 (height, width, 1 or 3), as a JPEG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def _glowing(pixels: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[:2]
    speaks_for = Image.fromarray(np.maximum(relevance, 0).astype(np.float32))
    coarse = speaks_for.resize((_COARSE, _COARSE), Image.Resampling.BOX)
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR), dtype=np.float64)
    share = smooth / smooth.max() if smooth.max() > 0 else smooth
    grey = pixels.mean(axis=-1, keepdims=True) * 0.7
    mixed = grey * (1 - share[..., None]) + _GLOW * share[..., None]
    glowing: np.ndarray = np.clip(mixed.round(), 0, 255).astype(np.uint8)
    return glowing
