"""How far some pixels reach: the box of rows and columns that they can change in every plane of a model.

Only there tangents are not zero, and only there a gradient has to be known on its way to these pixels. Near the image
that is a sliver of the work. The box grows with every convolution, until it is the whole plane and nothing is saved.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.models.surgery.fast_trunk import channels_last

Box = tuple[range, range]  # rows and columns
Size = tuple[int, int]

# By exact class: a subclass may do more. All of them in eval mode.
_POINTWISE: set[Any] = {nn.BatchNorm2d, nn.Dropout, nn.GELU, nn.Hardswish, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.ReLU6}
_POINTWISE |= {nn.SiLU, operator.add, operator.mul, torch.add, torch.mul, torch.relu, functional.relu, channels_last}
_MOST = 0.75  # of a plane: a larger box is not worth the copies


@dataclass(frozen=True, eq=False)
class Near:
    """A plane that is constant but for the part of it that lies in a box."""

    plane: Tensor
    part: Tensor  # what derivatives are taken of
    box: Box

    def within(self, target: Box, *, padding: float = 0.0) -> Tensor:
        """Return what lies in another box, which may stick out of the plane."""
        if self.box == target:
            return self.part
        whole = whole_of(self.plane)
        inside = _shared(target, whole)
        result = _cropped(self.plane.detach(), whole, inside).clone()
        shared = _shared(self.box, inside)
        _cropped(result, inside, shared).copy_(_cropped(self.part, self.box, shared))
        return moved(result, inside, target, padding=padding)


@dataclass(frozen=True)
class Step:
    """One operation near the box: what it reads, which may stick out into the padding, and what it can change."""

    reads: Box
    writes: Box
    unpadded: nn.Module | None = None  # takes the place of a module that pads
    padding: float = 0.0


def box_around(mask: Tensor) -> Box | None:
    """Return the box around all marked pixels of a batch; None where it is most of the image, or nothing is marked."""
    marked = mask.flatten(0, -3).any(0)
    rows, columns = (marked.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    if not rows:
        return None
    return _unless_most((range(rows[0], rows[-1] + 1), range(columns[0], columns[-1] + 1)), size_of(mask))


def step_near(operation: Any, args: Sequence[Any], inputs: Sequence[Near]) -> Step | None:
    """Return what an operation does near the boxes of its inputs; None where that is unknown, or most of the plane.

    Args:
        operation: A module or a function.
        args: What it is called with.
        inputs: All tensors among them.
    """
    size, *others = {size_of(near.plane) for near in inputs}
    if others:
        return None
    box = _hull([near.box for near in inputs])
    kind = type(operation) if isinstance(operation, nn.Module) else operation
    if kind in _POINTWISE or (kind is torch.cat and args[1:] == (1,)):
        return Step(box, box) if _unless_most(box, size) else None
    if kind is nn.Conv2d and operation.padding_mode == "zeros" and not isinstance(operation.padding, str):
        return _window(operation, box, size, padding=0.0)
    if kind is nn.MaxPool2d and not operation.ceil_mode and not operation.return_indices:
        return _window(operation, box, size, padding=-math.inf)
    if kind is nn.AvgPool2d and not operation.ceil_mode and _pair(operation.padding) == (0, 0):
        return _window(operation, box, size, padding=0.0)
    return None


def convolved(near: Near, step: Step, plane: Tensor) -> Near:
    """Return the plane that a convolution has made, with a derivative in the box; nothing is computed for it yet."""
    return Near(plane, _Convolved.apply(near.part, plane, near.box, step), step.writes)


def moved(part: Tensor, box: Box, target: Box, *, padding: float = 0.0) -> Tensor:
    """Return what of one box lies in another; the rest of that one is padding."""
    if box == target:
        return part
    shared = _shared(box, target)
    (top, bottom), (left, right) = (
        (kept.start - wanted.start, wanted.stop - kept.stop) for kept, wanted in zip(shared, target)
    )
    return functional.pad(_cropped(part, box, shared), (left, right, top, bottom), value=padding)


def whole_of(plane: Tensor) -> Box:
    """Return the box that is all of a plane."""
    height, width = size_of(plane)
    return range(height), range(width)


def size_of(plane: Tensor) -> Size:
    """Return a plane's height and width."""
    return plane.shape[-2], plane.shape[-1]


class _Convolved(torch.autograd.Function):
    """The numbers of a plane that is there already, with the gradient of the convolution that made it."""

    @staticmethod
    def forward(part: Tensor, plane: Tensor, box: Box, step: Step) -> Tensor:
        return _cropped(plane, whole_of(plane), step.writes).clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, ctx.box, ctx.step = inputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Tensor, None, None, None]:
        conv = ctx.step.unpadded
        (cotangent,), options = cotangents, (conv.stride, 0, 0, conv.groups, conv.dilation)
        gradient = functional.conv_transpose2d(cotangent, conv.weight.to(cotangent.dtype), None, *options)
        return moved(gradient, ctx.step.reads, ctx.box), None, None, None


def _window(module: Any, box: Box, size: Size, *, padding: float) -> Step | None:
    """Return the step of an operation that moves a window over the plane."""
    names = ("kernel_size", "stride", "padding", "dilation")
    axes = zip(box, size, *(_pair(getattr(module, name, 1)) for name in names))  # average pooling has no dilation
    reads, writes, sizes = zip(*(_slide(*axis) for axis in axes))
    unpadded = copy.copy(module)  # shares the weights
    unpadded.padding = (0, 0)
    return Step(reads, writes, unpadded, padding) if _unless_most(writes, sizes) else None


def _slide(span: range, length: int, kernel: int, stride: int, padding: int, dilation: int) -> tuple[range, range, int]:
    """Return, along one axis, what is read and written for a span of the input, and the output's length."""
    ahead = dilation * (kernel - 1)
    positions = (length + 2 * padding - ahead - 1) // stride + 1
    # Rounded down and never empty, even where a stride leaps over all of the span.
    first = min(max((span.start + padding - ahead) // stride, 0), positions - 1)
    last = min((span.stop - 1 + padding) // stride, positions - 1)
    return range(first * stride - padding, last * stride - padding + ahead + 1), range(first, last + 1), positions


def _unless_most(box: Box, size: Size) -> Box | None:
    rows, columns = box
    return box if len(rows) * len(columns) <= _MOST * math.prod(size) else None


def _hull(boxes: Sequence[Box]) -> Box:
    rows, columns = (
        range(min(span.start for span in spans), max(span.stop for span in spans)) for spans in zip(*boxes)
    )
    return rows, columns


def _shared(box: Box, target: Box) -> Box:
    """Return what two boxes share; without any, empty spans inside of the second."""
    rows, columns = (
        range(*(min(max(end, within.start), within.stop) for end in (span.start, span.stop)))
        for span, within in zip(box, target)
    )
    return rows, columns


def _cropped(part: Tensor, box: Box, target: Box) -> Tensor:
    """Return a view of what lies in a smaller box."""
    rows, columns = (slice(kept.start - mine.start, kept.stop - mine.start) for mine, kept in zip(box, target))
    return part[..., rows, columns]


def _pair(value: Any) -> Size:
    return (value, value) if isinstance(value, int) else tuple(value)
