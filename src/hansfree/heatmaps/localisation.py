"""Heatmaps of a CAV: where in the image the score along a direction comes from (paper, Q1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.activations.positions import at_every_position, channel_axis
from hansfree.cavs import CAV
from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError
from hansfree.files import read_arrays, written_atomically
from hansfree.heatmaps.explanations import gradient_times_input, propagate, usable_form
from hansfree.heatmaps.lrp import check_images
from hansfree.heatmaps.masks import masks_from_heatmaps
from hansfree.progress import Progress, silent
from hansfree.splitting import layer_order, split
from hansfree.splitting.orders import inverse


def compute_cav_heatmaps(
    model: nn.Module, layer: str, cav: CAV | np.ndarray | Tensor, images: Tensor, *, batch_size: int = 32
) -> Tensor:
    """Return the relevance of every pixel for the score ``a . h`` along a CAV, over all channels: (n, height, width).

    Every position of the layer counts, though CAVs are fitted on the maximum over the positions: the paper writes the
    score as the dot product with the activations, and a maximum is taken at one position per channel, which cannot
    outline an artifact. (On the embedded plaster both give masks of the same quality.) By LRP where that conserves
    relevance up to the layer: without biases before it, the heatmap adds up to the sum of ``a . h`` over the positions.
    By gradient x input elsewhere (``explanation_of(model, images, layer=layer)`` says which).

    Args:
        model: a classifier; it is explained as it is in eval mode.
        layer: where the CAV lives, a name that ``list_layers`` shows.
        cav: fitted, or a direction (channels,). Several directions are combined as in ``CAV.decision_function``.
        images: (n, channels, height, width), normalised as the model takes them.
        batch_size: images per backward pass.
    """
    check_images(images, batch_size)
    direction = _direction(cav)
    if len(images) == 0:
        return images.new_zeros((0, *images.shape[2:]))

    with torch.inference_mode(False), torch.enable_grad():
        like = next(model.parameters(), images)
        probe = images[:1].clone().to(like)
        form = usable_form(model, images, layer=layer)
        order = None
        if form is not None:
            order = layer_order(model, layer, probe)
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
        return gradient_times_input(lambda x: trunk(x)[0], images, weigh, like=like, batch_size=batch_size)


def localise_artifact(
    model: nn.Module,
    layer: str,
    cav: CAV,
    images: ExampleSet,
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
    """Return the masks that a run folder keeps in an ``.npz`` file, or find and keep them: that takes long."""
    if not path.exists():
        masks = find()
        with written_atomically(path) as temporary:
            np.savez_compressed(temporary, masks=masks)
    return read_arrays(path)["masks"]


def _direction(cav: CAV | np.ndarray | Tensor) -> Tensor:
    if isinstance(cav, CAV):
        cav = cav.combination_ @ cav.directions_
    direction = torch.as_tensor(cav, dtype=torch.float64).detach().cpu()
    if direction.ndim != 1 or not bool(torch.isfinite(direction).all()):
        raise DataError(f"A direction is (channels,) and finite; this one has the shape {tuple(direction.shape)}.")
    return direction
