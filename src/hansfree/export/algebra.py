"""The linear algebra of a fold: which weights do what a linear layer and a projection do together.

With ``M = I - D^T R`` and ``v = D^T t`` (directions D, readout R, mostly D itself, target t) the projection turns one
position into ``Ma + v``.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from hansfree.corrections import Projection


class NotFoldedError(Exception):
    """Why a projection is in no weights; `fold_projection` makes a sentence of it."""


def through_layer(linear: nn.Linear, norm: Any, projection: Projection) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return weight and bias of the linear layer, and bias of the norm: ``M(s(Wx + b) + o) + v = s(W'x + b') + o'``.

    The constant part goes into the linear layer's bias, or where it has none into the norm's.

    Args:
        norm: A batch norm in eval mode in float64, or None.
    """
    D, R, t = _parts(projection)
    scale, offset = torch.ones_like(D[0]), torch.zeros_like(D[0])
    if norm is not None:
        # What it does is affine, so two values tell all of it, whatever parameters and statistics it has.
        offset = norm(torch.zeros_like(scale)[None])[0]
        scale = norm(torch.ones_like(scale)[None])[0] - offset
        if bool((scale == 0).any()):
            raise NotFoldedError("its batch norm silences channels")
    weight = scale[:, None] * linear.weight
    weight = (weight - D.T @ (R @ weight)) / scale[:, None]
    bias: Tensor | None = linear.bias
    if bias is not None:
        constant = scale * bias + offset
        return weight, (constant + (t - R @ constant) @ D - offset) / scale, None
    if norm is not None and norm.bias is not None:
        return weight, None, norm.bias + (t - R @ offset) @ D
    raise NotFoldedError("the layer has no bias to take up the target")


def through_next(linear: nn.Linear, projection: Projection, *, channels_last: bool) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of a linear layer that reads (channels, positions), shifted by their mean score."""
    D, R, t = _parts(projection)
    outputs, channels = len(linear.weight), D.shape[1]
    layout = (outputs, -1, channels) if channels_last else (outputs, channels, -1)
    axis = 1 if channels_last else 2
    weight = linear.weight.reshape(layout)
    along = weight.sum(axis) @ D.T  # (outputs, k): what a shift along each direction does
    folded = weight - (along @ R).unsqueeze(axis) / weight.shape[axis]
    return folded.reshape(outputs, -1), linear.bias + along @ t


def _parts(projection: Projection) -> tuple[Tensor, Tensor, Tensor]:
    D = projection.directions
    return D, D if projection.readout is None else projection.readout, projection.target


def replaced(module: Any, **parameters: Tensor | None) -> Any:
    """Return a float64 copy of a module with some parameters replaced; None leaves one as it is."""
    changed = copy.deepcopy(module).double()
    for name, value in parameters.items():
        if value is not None:
            setattr(changed, name, nn.Parameter(value.detach(), requires_grad=False))
    return changed
