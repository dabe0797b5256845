"""Frozen parts of a model around some images: gradients go down and tangents up, after one forward pass.

``torch.func.jvp`` runs the forward pass anew for every tangent, and the backward of a backward pass computes each
convolution twice. Here a convolution runs once, on the tangent alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.fx.node import map_aggregate

from hansfree.models.surgery.cut import is_plain
from hansfree.models.surgery.reach import Box, Near, Step, box_around, convolved, moved, step_near, whole_of

# Linear but for what they add or subtract. By exact class: a subclass may do more.
_AFFINE = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}
_ADDED = ("bias", "running_mean")


class Linearised:
    """Parts that follow each other, without randomness; for use within ``exact_forward_mode``.

    Args:
        parts: Each takes the tuple that the one before returns.
        images: What they are linearised around.
        within: Marks the pixels, ``(n, 1, height, width)``, at which gradients are wanted and tangents are given; at
            others they mean nothing. The smaller the box around them, the less is computed.
    """

    def __init__(self, parts: Sequence[nn.Module], images: Tensor, *, within: Tensor | None = None) -> None:
        self._parts = [_Graph(part) if isinstance(part, fx.GraphModule) else _Whole(part) for part in parts]
        images, self._whole = images.detach(), whole_of(images)
        box = None if within is None or isinstance(self._parts[0], _Whole) else box_around(within)
        self._box = box or self._whole
        self._pixels = moved(images, self._whole, self._box).requires_grad_()
        outputs: Any = (self._pixels if box is None else Near(images, self._pixels, box),)
        with torch.enable_grad():
            for part in self._parts:
                outputs = part.forward(outputs)
        self._outputs: tuple[Tensor, ...] = outputs

    def pull(self, cotangents: Sequence[Tensor]) -> Tensor:
        """Return the gradient at the images for one at the outputs."""
        pairs = [pair for pair in zip(self._outputs, cotangents, strict=True) if pair[0].requires_grad]
        outputs, given = zip(*((out, cotangent.to(out)) for out, cotangent in pairs))  # autocast may have made it half
        (gradient,) = torch.autograd.grad(outputs, self._pixels, given, retain_graph=True)
        return moved(gradient, self._box, self._whole)

    def push(self, tangent: Tensor) -> tuple[Tensor, ...]:
        """Return the tangents at the outputs for one at the images."""
        tangents: tuple[Tensor | None, ...] = (moved(tangent, self._whole, self._box),)
        # A custom autograd function, from which this may be called, turns forward mode off.
        with torch.no_grad(), forward_ad._set_fwd_grad_enabled(True):
            for part in self._parts:
                tangents = part.push(tangents)
        return tuple(torch.zeros_like(out) if t is None else t for out, t in zip(self._outputs, tangents))


class _Whole:
    """A part that is no graph: its tangents need its forward pass again."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self._inputs = tuple(tensor.detach() for tensor in inputs)
        return tuple(self._module(*inputs))

    def push(self, tangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        with forward_ad.dual_level():
            return tuple(map(_tangent, self._module(*map(_dual, self._inputs, tangents))))


class _Graph(fx.Interpreter):
    """A traced part; it keeps, of its forward pass, what the tangents need."""

    def __init__(self, part: fx.GraphModule) -> None:
        super().__init__(part)
        self._kept: dict[fx.Node, Any] = {}  # of a ReLU its output, of what is not affine its inputs
        self._steps: dict[fx.Node, Step] = {}
        self._moves: dict[tuple[fx.Node, fx.Node], tuple[Box, Box]] = {}  # by reader and source

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return tuple(self.run(*inputs))

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "placeholder":
            return super().run_node(n)
        inputs = {source: self.env[source] for source in n.all_input_nodes}
        step = self._step(n, list(inputs.values()))
        for source, value in inputs.items():
            if isinstance(value, Near):
                self._moves[n, source] = value.box, whole_of(value.plane) if step is None else step.reads
        if step is None:
            return self._run(n, {source: _in_full(value) for source, value in inputs.items()})
        self._steps[n] = step
        with torch.no_grad():
            plane = self._call(n, {source: near.plane for source, near in inputs.items()})
        if isinstance(step.unpadded, nn.Conv2d):
            (near,) = inputs.values()
            return convolved(near, step, plane)
        read = {source: near.within(step.reads, padding=step.padding) for source, near in inputs.items()}
        return Near(plane, self._run(n, read, step.unpadded), step.writes)

    def _step(self, node: fx.Node, inputs: list[Any]) -> Step | None:
        """Return what a node does near a box; None where it needs its inputs whole."""
        if not inputs or not all(isinstance(value, Near) for value in inputs):
            return None
        if node.op != "call_module":
            return step_near(node.target, node.args, inputs)
        module = self.fetch_attr(str(node.target))
        return step_near(module, node.args, inputs) if self._is(node, {type(module)}) else None

    def _run(self, node: fx.Node, read: Mapping[fx.Node, Any], module: nn.Module | None = None) -> Any:
        result = self._call(node, read, module)
        if self._is(node, {nn.ReLU}):
            self._kept[node] = result.detach()
        elif not self._is(node, _AFFINE):
            self._kept[node] = {source: map_aggregate(value, _detached) for source, value in read.items()}
        return result

    def _call(self, node: fx.Node, read: Mapping[fx.Node, Any], module: nn.Module | None = None) -> Any:
        """Call what a node calls, or a module in its place, on what was read of each source."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), read.__getitem__)
        return getattr(self, node.op)(node.target, args, dict(kwargs)) if module is None else module(*args, **kwargs)

    def push(self, tangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        found: dict[fx.Node, Any] = {}
        given = iter(tangents)
        *nodes, output = self.graph.nodes
        for node in nodes:
            found[node] = next(given) if node.op == "placeholder" else self._push_through(node, found)
        return tuple(self._moved(found, source, output) for source in output.args[0])

    def _push_through(self, node: fx.Node, found: dict[fx.Node, Any]) -> Any:
        if all(found[source] is None for source in node.all_input_nodes):
            return None
        unpadded = self._steps[node].unpadded if node in self._steps else None
        tangents = {source: self._moved(found, source, node) for source in node.all_input_nodes}
        if self._is(node, _AFFINE):
            module = unpadded or self.fetch_attr(str(node.target))
            added = {name: getattr(module, name, None) for name in _ADDED}
            without = {name: torch.zeros_like(value) for name, value in added.items() if value is not None}
            return functional_call(module, without, tuple(tangents.values()))
        if self._is(node, {nn.ReLU}):
            return torch.ops.aten.threshold_backward(*tangents.values(), self._kept[node], 0)
        with forward_ad.dual_level():
            return map_aggregate(self._call(node, _dual(self._kept[node], tangents), unpadded), _tangent)

    def _moved(self, found: Mapping[fx.Node, Any], source: fx.Node, reader: fx.Node) -> Any:
        """Return a tangent in the box in which it is read."""
        boxes = self._moves.get((reader, source))
        return found[source] if boxes is None else moved(found[source], *boxes)

    def _is(self, node: fx.Node, kinds: set[type[nn.Module]]) -> bool:
        if node.op != "call_module":
            return False
        module: nn.Module = self.fetch_attr(str(node.target))
        return type(module) in kinds and is_plain(module) and not module.training


def _in_full(value: Any) -> Any:
    return value.within(whole_of(value.plane)) if isinstance(value, Near) else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _dual(value: Any, tangent: Any) -> Any:
    """Join values, in tuples or dicts or alone, with their tangents."""
    if tangent is None:
        return value
    if isinstance(value, dict):
        return {key: _dual(part, tangent[key]) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(_dual, value, tangent))
    return forward_ad.make_dual(value, tangent)  # type: ignore[no-untyped-call]


def _tangent(value: Any) -> Tensor | None:
    return forward_ad.unpack_dual(value).tangent if isinstance(value, Tensor) else None  # type: ignore[no-untyped-call]
