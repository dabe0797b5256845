"""Pairs where the artifact cannot be inserted: it is cut out of marked images and pasted onto clean ones.

marked images --CAV's localisation--> masks --paste--> clean images with the artifact
"""

from __future__ import annotations

import numpy as np
from torch import nn

from hansfree._internal.progress import Progress, silent
from hansfree.cavs import CAV
from hansfree.data import ImageDataset, Images, Pasted, Subset, as_image_dataset
from hansfree.errors import DataError
from hansfree.evaluation.localisation import localise_artifact


def make_auto_pairs(
    model: nn.Module,
    layer: str,
    cav: CAV,
    images: ImageDataset | Images,
    *,
    masks: np.ndarray | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[ImageDataset, ImageDataset]:
    """Return the images without the artifact, and the same ones with an artifact cut out of a labelled one.

    Masks of the whole image are left out: they would replace the image.

    Args:
        cav: fitted at ``layer``; its heatmaps select what is cut out.
        images: with artifact labels, also as a plain torch dataset of ``(image, label, has_artifact)``.
        masks: of the images with the artifact, from `localise_artifact`; None computes them.
    """
    images = as_image_dataset(images)
    marked = np.flatnonzero(images.has_artifact)
    if not 0 < len(marked) < len(images):
        raise DataError(
            f"Auto-pairs need images with and without the artifact: {len(marked)} of {len(images)} carry it."
        )
    if masks is None:
        masks = localise_artifact(model, layer, cav, images, marked, progress=progress)
    if len(masks) != len(marked):
        raise DataError(f"{len(marked)} marked images need as many masks, and {len(masks)} are given.")
    is_found = ~masks.all(axis=(1, 2))
    if not is_found.any():
        raise DataError(f"The CAV finds the artifact in none of the {len(marked)} marked images: nothing to cut out.")
    clean = Subset(images, np.flatnonzero(~images.has_artifact))
    return clean, Pasted(clean, Subset(images, marked[is_found]), masks[is_found], seed=seed)
