"""Frozen parts that are linear but for ReLUs and maxima: all they need to know of an image is which of them are open.

The trunk never changes, and so these patterns do not either. Where they are known, gradients go down and tangents up
without a forward pass. They are small: a bit for each output of a ReLU, four bytes for each maximum.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional

from hansfree.models.surgery.cut import is_plain
from hansfree.models.surgery.fast_trunk import channels_last

# By exact class: a subclass may do more. All of them in eval mode.
_LINEAR: set[Any] = {nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.BatchNorm2d, nn.Dropout, nn.Flatten, nn.Identity}
_LINEAR |= {operator.add, operator.getitem, torch.cat, torch.flatten, channels_last}
_RELUS: set[Any] = {nn.ReLU, torch.relu, functional.relu}
_ADDED = ("bias", "running_mean")

Pattern = tuple[Tensor, ...]
"""Of every ReLU the bits, of every maximum its place, in the order in which they run; without or with a first axis."""
Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Patterns:
    """The patterns of images, kept up to a limit; an image for which there is no room needs its forward pass again.

    Args:
        parts: Each takes the tuple that the one before returns; :meth:`of` asks whether patterns tell all of them.
        limit: In bytes.
    """

    def __init__(self, parts: Sequence[fx.GraphModule], *, limit: int = 2**31) -> None:
        self._parts, self._room = parts, limit
        self._kept: dict[int, Pattern] = {}

    @classmethod
    def of(cls, parts: Sequence[nn.Module]) -> Patterns | None:
        """Return an empty store; None where the parts do anything that is not known to be piecewise linear."""
        graphs = [part for part in parts if isinstance(part, fx.GraphModule)]
        known = len(graphs) == len(parts) and all(_is_known(part, node) for part in graphs for node in part.graph.nodes)
        return cls(graphs) if known else None

    def around(self, rows: Sequence[int], images: Tensor) -> Patterned:
        """Return the linear map around images, which are known by their rows."""
        new = [place for place, row in enumerate(rows) if row not in self._kept]
        found = dict(zip((rows[place] for place in new), self._find(images[new]) if new else ()))
        for row, pattern in found.items():
            size = sum(each.nbytes for each in pattern)
            if size <= self._room:
                self._room -= size
                self._kept[row] = pattern
        each_image = [found.get(row) or self._kept[row] for row in rows]
        return Patterned(self._parts, tuple(map(torch.stack, zip(*each_image))), images)

    @torch.no_grad()
    def _find(self, images: Tensor) -> list[Pattern]:
        found: list[Tensor] = []

        def call(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if _kind(operation) is nn.MaxPool2d:
                result, places = functional.max_pool2d(*args, **_window(operation), return_indices=True)
                found.append(places.movedim(1, -1).int())
                return result
            result = operation(*args, **kwargs)
            if _kind(operation) in _RELUS:
                found.append(_packed(result > 0))
            return result

        _run(self._parts, images, call)
        return [tuple(each.clone() for each in pattern) for pattern in zip(*found)]  # a view would hold the whole batch


class Patterned:
    """The linear map that parts are around images with these patterns."""

    def __init__(self, parts: Sequence[fx.GraphModule], patterns: Pattern, images: Tensor) -> None:
        self._parts = parts
        self._patterns = [_unpacked(each) if each.dtype == torch.uint8 else each.long() for each in patterns]
        self._pixels = images.new_zeros(()).expand(images.shape).requires_grad_()
        with torch.enable_grad():
            self._outputs = self._push(self._pixels, _hollow)

    def pull(self, cotangents: Sequence[Tensor]) -> Tensor:
        """Return the gradient at the images for one at the outputs."""
        given = [cotangent.to(out) for cotangent, out in zip(cotangents, self._outputs, strict=True)]
        return torch.autograd.grad(self._outputs, self._pixels, given, retain_graph=True)[0]

    @torch.no_grad()
    def push(self, tangent: Tensor) -> tuple[Tensor, ...]:
        """Return the tangents at the outputs for one at the images."""
        return self._push(tangent, lambda tangent, shape, forth, back: forth(tangent))

    def _push(self, tangent: Tensor, through: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        patterns = iter(self._patterns)

        def call(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            kind = _kind(operation)
            if kind in _RELUS or kind in (nn.Conv2d, nn.MaxPool2d):
                return through(args[0], *_linear_map(operation, args[0].shape, patterns))
            if not isinstance(operation, nn.Module):
                return operation(*args, **kwargs)
            added = {name: getattr(operation, name, None) for name in _ADDED}
            without = {name: torch.zeros_like(value) for name, value in added.items() if value is not None}
            return functional_call(operation, without, args, kwargs)

        return _run(self._parts, tangent, call)


class _Walk(fx.Interpreter):
    """Runs a graph, each of its operations by a function."""

    def __init__(self, part: fx.GraphModule, call: Call) -> None:
        super().__init__(part)
        self._call = call

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._call(self.fetch_attr(str(target)), args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._call(target, args, kwargs)


def _run(parts: Sequence[fx.GraphModule], images: Tensor, call: Call) -> tuple[Tensor, ...]:
    tensors: tuple[Tensor, ...] = (images,)
    for part in parts:
        tensors = tuple(_Walk(part, call).run(*tensors))
    return tensors


def _linear_map(operation: Any, shape: torch.Size, patterns: Iterator[Tensor]) -> tuple[Any, ...]:
    """Return the shape of what comes out, the map and its transpose."""
    if _kind(operation) is nn.Conv2d:
        return _convolution(operation, shape)
    pattern = next(patterns)
    if _kind(operation) is nn.MaxPool2d:
        return _maximum(operation, shape, pattern.movedim(-1, 1))
    channels, *positions = shape[1:]
    bits = pattern[:, : shape[1:].numel()].reshape(-1, *positions, channels).movedim(-1, 1)
    return shape, bits.mul, bits.mul


def _convolution(conv: Any, shape: torch.Size) -> tuple[Any, ...]:
    windows = zip(shape[2:], conv.kernel_size, conv.padding, conv.dilation)
    spare = [length + 2 * padding - dilation * (kernel - 1) - 1 for length, kernel, padding, dilation in windows]
    written = [room // stride + 1 for room, stride in zip(spare, conv.stride)]
    unread = [room % stride for room, stride in zip(spare, conv.stride)]  # a stride may end before the plane does
    moves = conv.stride, conv.padding

    def forth(tangent: Tensor) -> Tensor:
        return functional.conv2d(tangent, conv.weight.to(tangent.dtype), None, *moves, conv.dilation, conv.groups)

    def back(gradient: Tensor) -> Tensor:
        weight, groups, dilation = conv.weight.to(gradient.dtype), conv.groups, conv.dilation
        return functional.conv_transpose2d(gradient, weight, None, *moves, unread, groups, dilation)

    return (shape[0], conv.out_channels, *written), forth, back


def _maximum(pool: nn.MaxPool2d, shape: torch.Size, places: Tensor) -> tuple[Any, ...]:
    def forth(tangent: Tensor) -> Tensor:
        return tangent.flatten(2).gather(2, places.flatten(2)).view_as(places)

    def back(gradient: Tensor) -> Tensor:
        like = {"dtype": gradient.dtype, "device": gradient.device}
        read = torch.empty(shape, memory_format=torch.channels_last, **like)  # type: ignore[call-overload]
        window = _window(pool).values()
        return torch.ops.aten.max_pool2d_with_indices_backward(gradient, read, *window, places)  # type: ignore[no-any-return]

    return places.shape, forth, back


class _Hollow(torch.autograd.Function):
    """A plane of which nothing is computed but the gradient that it hands down."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, shape: Sequence[int], back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.back = back
        return given.new_zeros(()).expand(shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return ctx.back(*gradients), None, None


def _hollow(given: Tensor, shape: Sequence[int], forth: Any, back: Callable[[Tensor], Tensor]) -> Tensor:
    return _Hollow.apply(given, shape, back)  # type: ignore[no-any-return]


def _is_known(part: fx.GraphModule, node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    if node.op == "call_function":
        adds_constant = node.target is operator.add and len(node.all_input_nodes) < len(node.args)
        return node.target in _LINEAR | _RELUS and not adds_constant
    if node.op != "call_module":
        return node.op == "call_method" and node.target == "flatten"
    module: Any = part.get_submodule(str(node.target))
    if not is_plain(module) or module.training:
        return False
    if type(module) is nn.Conv2d:
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) in _LINEAR | _RELUS or (type(module) is nn.MaxPool2d and not module.return_indices)


def _kind(operation: Any) -> Any:
    return type(operation) if isinstance(operation, nn.Module) else operation


def _window(pool: nn.MaxPool2d) -> dict[str, Any]:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    return {name: getattr(pool, name) for name in names}


def _packed(bits: Tensor) -> Tensor:
    """Return eight bits in a byte for each image, channels last."""
    flat = bits.movedim(1, -1).flatten(1)
    rows = functional.pad(flat, (0, -flat.shape[1] % 8)).byte().reshape(len(flat), 8, -1)
    return (rows << _shifts(bits)).sum(1, dtype=torch.uint8)


def _unpacked(packed: Tensor) -> Tensor:
    return ((packed[:, None] >> _shifts(packed)) & 1).flatten(1)  # bytes, by which a product takes half of the time


def _shifts(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)[:, None]
