"""Pairs where the artifact cannot be inserted: it is cut out of marked images and pasted onto clean ones.

marked images --CAV's localisation--> masks --paste--> clean images with the artifact --PairCAV--> direction
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from hansfree._internal.progress import Progress, silent
from hansfree.activations import Pooling, collect_activations
from hansfree.cavs import CAV, CAVQuality, PairCAV, alignment_mean
from hansfree.data import BiasedData, ImageDataset, Images, Pasted, Subset, as_image_dataset
from hansfree.errors import DataError, UndefinedMetricError
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


@dataclass(frozen=True, eq=False)
class AutoPairQuality:
    """Cosines of directions with the mean change of true pairs of test images."""

    marked: CAVQuality  # of the CAV of the labelled images, which the masks come from
    auto: CAVQuality  # of the direction of the auto-pairs
    true: CAVQuality  # of the direction of true pairs of training images: the upper bound


def measure_auto_pairs(
    model: nn.Module,
    layer: str,
    cav: CAV,
    data: BiasedData,
    *,
    pooling: Pooling = "max",
    seed: int = 0,
    progress: Progress = silent,
) -> AutoPairQuality:
    """Compare the direction of auto-pairs with that of true pairs, on test images into which the artifact is put.

    Args:
        cav: fitted on the marked training images, with the same pooling.
        data: of an artifact that can be inserted; else there is nothing to compare with.
    """
    if not data.is_inserted or data.pairs is None:
        raise UndefinedMetricError("The true change is only known where the artifact can be inserted.")

    def pooled(images: ImageDataset, name: str) -> np.ndarray:
        found = collect_activations(model, layer, images, pooling=pooling, name=name, progress=progress)
        return found.pooled

    def fitted(pairs: tuple[ImageDataset, ImageDataset], name: str) -> PairCAV:
        clean, biased = (pooled(images, name) for images in pairs)
        return PairCAV(count=1).fit_pairs(clean, biased)

    auto = fitted(make_auto_pairs(model, layer, cav, data.train, seed=seed, progress=progress), "auto-pairs")
    true = fitted(data.pairs, "true pairs")
    changes = pooled(data.test_biased, "test biased") - pooled(data.test_clean, "test clean")
    marked, cut, inserted = (alignment_mean(one.direction_, changes) for one in (cav, auto, true))
    return AutoPairQuality(marked, cut, inserted)
