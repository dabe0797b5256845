"""Masks from CAV heatmaps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from hansfree._internal.files import read_arrays, written_atomically
from hansfree._internal.progress import Progress, silent
from hansfree.activations import at_every_position, channel_axis
from hansfree.cavs import CAV
from hansfree.data import ImageDataset
from hansfree.errors import DataError, RunError
from hansfree.evaluation.heatmaps import check_images, gradient_maps, propagate, usable_form
from hansfree.models.surgery import inverse, layer_order, split

logger = logging.getLogger(__name__)


BLUR = 0.03  # standard deviation of the smoothing, as a part of the shorter side


def masks_from_heatmaps(heatmaps: Tensor | np.ndarray) -> np.ndarray:
    """Return where each heatmap is large: bool (n, height, width), never empty.

    Positive relevance, smoothed, and cut by Otsu's threshold of each image (the paper says only "a threshold"), which
    adapts to the size of the artifact. Without any positive relevance, or with the same everywhere, the mask is the
    full image, as for unlocalised artifacts.

    Such masks are for training only: scored by them, a method would be judged by the CAV that taught it.
    """
    relevance = np.asarray(torch.as_tensor(heatmaps).detach().cpu(), dtype=np.float64)
    if relevance.ndim != 3 or not all(relevance.shape[1:]):
        raise DataError(f"Masks are made of heatmaps (n, height, width), not of shape {relevance.shape}.")
    if not np.isfinite(relevance).all():
        bad = np.flatnonzero(~np.isfinite(relevance).all(axis=(1, 2)))
        raise DataError(f"{len(bad)} of {len(relevance)} heatmaps are not finite; the first is number {bad[0]}.")
    positive = np.maximum(relevance, 0)
    sigma = BLUR * min(relevance.shape[1:])
    smooth = gaussian_filter(positive, sigma=(0, sigma, sigma), mode="nearest")
    # The filter's rounding must not make two values out of a constant map.
    smooth[positive.max(axis=(1, 2)) == positive.min(axis=(1, 2))] = 0
    masks: np.ndarray = np.stack([one > _otsu(one) for one in smooth]) if len(smooth) else np.zeros(smooth.shape, bool)
    masks[~masks.any(axis=(1, 2))] = True
    return masks


def _otsu(values: np.ndarray) -> float:
    """Return the value that best cuts all values in two: above it and not above it differ the most (Otsu, 1979)."""
    ordered = np.sort(values, axis=None)
    below = np.arange(1, len(ordered))
    above = len(ordered) - below
    sums = np.cumsum(ordered)
    gap = (sums[-1] - sums[:-1]) / above - sums[:-1] / below
    between = below * above * gap**2
    # Equal values belong to one side: a cut among them is no cut.
    between[ordered[1:] == ordered[:-1]] = -1
    if not len(between) or between.max() <= 0:
        return float(ordered[-1])
    return float(ordered[np.argmax(between)])


def compute_cav_heatmaps(
    model: nn.Module, layer: str, cav: CAV | np.ndarray | Tensor, images: Tensor, *, batch_size: int = 32
) -> Tensor:
    """Return the relevance of every pixel for the score ``a . h`` along a CAV, over all channels: (n, height, width).

    Every position of the layer counts, though CAVs are fitted on the maximum over the positions, which cannot outline
    an artifact. By LRP where that conserves relevance up to the layer, by gradient x input elsewhere
    (``explanation_of(model, images, layer=layer)`` says which).

    Args:
        model: a classifier; it is explained in eval mode.
        cav: fitted, or a direction (channels,). Several directions are combined as in ``CAV.decision_function``.
        images: (n, channels, height, width), normalised as the model takes them.
    """
    check_images(images, batch_size)
    direction = _direction(cav)
    if len(images) == 0:
        return images.new_zeros((0, *images.shape[2:]))

    with torch.inference_mode(False), torch.enable_grad():
        like = next(model.parameters(), images)
        probe = images[:1].clone().to(like)
        form = usable_form(model, images, layer=layer)
        order = None if form is None else layer_order(model, layer, probe)
        if form is not None:
            shape = form(probe).shape
            shape = shape if order is None else torch.Size([shape[axis] for axis in order])
        else:
            cut = split(model, layer, example=probe.cpu())  # its trunk turns the axes itself
            trunk = cut.trunk.to(like.device)
            shape = trunk(probe)[0].shape
        channels = shape[channel_axis(len(shape))]
        if len(direction) != channels:
            raise DataError(f"The direction has {len(direction)} channels, the layer {layer!r} has {channels}.")
        everywhere = at_every_position(direction[None], len(shape))
        if order is not None:
            everywhere = everywhere.permute(inverse(order))

        def weigh(activations: Tensor, _rows: slice) -> Tensor:
            return everywhere.to(activations).expand_as(activations)

        if form is not None:
            return propagate(form, images, weigh, batch_size=batch_size)
        return gradient_maps(lambda x: trunk(x)[0], images, weigh, like=like, batch_size=batch_size)


def localise_artifact(
    model: nn.Module,
    layer: str,
    cav: CAV,
    images: ImageDataset,
    rows: np.ndarray,
    *,
    progress: Progress = silent,
    label: str = "where the artifact is",
) -> np.ndarray:
    """Return masks of where the CAV finds the artifact in some of the images: bool (rows, height, width)."""
    parts = np.array_split(rows, max(1, len(rows) // 64))
    return np.concatenate(
        [
            masks_from_heatmaps(compute_cav_heatmaps(model, layer, cav, images.batch(some).image))
            for some in progress(parts, total=len(parts), label=label)
        ]
    )


def kept_masks(path: Path, find: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the masks in an ``.npz`` file of a run folder; find and store them where it is missing or damaged."""
    if path.exists():
        try:
            return read_arrays(path)["masks"]
        except (KeyError, RunError):  # of another file, or none
            logger.warning("%s is damaged, and is computed again.", path)
    masks = find()
    with written_atomically(path) as temporary:
        np.savez_compressed(temporary, masks=masks)
    return masks


def _direction(cav: CAV | np.ndarray | Tensor) -> Tensor:
    if isinstance(cav, CAV):
        cav = cav.combination_ @ cav.directions_
    direction = torch.as_tensor(cav, dtype=torch.float64).detach().cpu()
    if direction.ndim != 1 or not bool(torch.isfinite(direction).all()):
        raise DataError(f"A direction is (channels,) and finite; this one has the shape {tuple(direction.shape)}.")
    return direction
