"""Heatmaps of the same test images under several methods, as a run keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hansfree.files import read_arrays

_PREFIX = "relevance/"


@dataclass(frozen=True)
class HeatmapSet:
    """The same images under several methods."""

    images: np.ndarray  # uint8 (m, height, width, 3), with the artifact
    masks: np.ndarray  # bool (m, height, width)
    relevance: dict[str, np.ndarray]  # method -> (m, height, width)
    direction: np.ndarray | None = None  # (m, height, width): for the score along the CAV, in the model as it came
    labels: np.ndarray | None = None  # the true class of each
    ids: np.ndarray | None = None  # which image of the source each is


def read_heatmaps(path: Path) -> HeatmapSet:
    """Read ``heatmaps.npz``; an older one does not say which images it holds."""
    stored = read_arrays(path)
    return HeatmapSet(
        stored["images"],
        stored["masks"].astype(bool),
        {key[len(_PREFIX) :]: values for key, values in stored.items() if key.startswith(_PREFIX)},
        stored["direction"],
        stored.get("labels"),
        stored.get("ids"),
    )
