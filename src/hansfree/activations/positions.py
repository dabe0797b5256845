"""Where a layer's channels stand, and what happens at its positions.

A layer's output is a map ``(n, channels, height, width)``, a row of tokens ``(n, tokens, channels)`` or flat
``(n, channels)``; what a model has otherwise, the cut turns (`hansfree.splitting.layout`). A direction lives in the
channels; "at every position" means everywhere else.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from hansfree.errors import DataError
from hansfree.splitting.layout import CHANNEL_AXIS

Pooling = Literal["max", "mean"]


def channel_axis(ndim: int) -> int:
    """Return the axis of the channels in a batch of activations with ``ndim`` axes."""
    if ndim not in CHANNEL_AXIS:
        raise DataError(
            f"A layer's output must be flat (n, channels), tokens (n, tokens, channels) or maps "
            f"(n, channels, height, width); this one has {ndim} axes."
        )
    return CHANNEL_AXIS[ndim]


def pool(activations: Tensor, pooling: Pooling) -> Tensor:
    """Reduce activations to one number per channel, ``(n, channels)``: the paper takes the maximum (App. A.4)."""
    axes = position_axes(activations.ndim)
    if not axes:
        return activations
    return activations.amax(axes) if pooling == "max" else activations.mean(axes)


def at_every_position(vectors: Tensor, ndim: int) -> Tensor:
    """Give vectors ``(n, channels)`` the axes that let them be added to activations with ``ndim`` axes."""
    for axis in position_axes(ndim):  # not a reshape: it would fix the number of images in an exported graph
        vectors = vectors.unsqueeze(axis)
    return vectors


def along(activations: Tensor, direction: Tensor) -> Tensor:
    """Return the coordinate along ``direction`` at each position, flattened: ``(n, positions)``."""
    coordinates = activations.movedim(channel_axis(activations.ndim), -1).matmul(direction)
    return coordinates.reshape(len(activations), -1)


def position_axes(ndim: int) -> tuple[int, ...]:
    """Return the axes of a batch of activations that are neither the images nor the channels."""
    channels = channel_axis(ndim)
    return tuple(axis for axis in range(1, ndim) if axis != channels)


def count_positions(shape: tuple[int, ...]) -> int:
    """Return how many positions activations of this shape have; 1 when they are flat."""
    return math.prod(shape[axis] for axis in position_axes(len(shape)))


def sum_positions(activations: Tensor) -> Tensor:
    """Add up over the positions: ``(n, channels)``."""
    axes = position_axes(activations.ndim)
    return activations.sum(axes) if axes else activations


def random_signs(activations: Tensor, generator: torch.Generator) -> Tensor:
    """Draw +1 or -1 for every position of every image, the same for all channels."""
    shape = list(activations.shape)
    shape[channel_axis(activations.ndim)] = 1
    return (2 * torch.randint(0, 2, shape, generator=generator) - 1).to(activations)
