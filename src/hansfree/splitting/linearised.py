"""Frozen parts of a model around some images: gradients go down and tangents up, after one forward pass.

``torch.func.jvp`` runs the forward pass anew for every tangent, and the backward of a backward pass computes each
convolution twice. Here a convolution runs once, on the tangent alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.fx.node import map_aggregate

from hansfree.splitting.stages import is_plain

# Linear but for what they add or subtract. By exact class: a subclass may do more.
_AFFINE = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}
_ADDED = ("bias", "running_mean")


class Linearised:
    """Parts that follow each other, without randomness; for use within ``exact_forward_mode``."""

    def __init__(self, parts: Sequence[nn.Module], images: Tensor) -> None:
        self._parts = [_Graph(part) if isinstance(part, fx.GraphModule) else _Whole(part) for part in parts]
        with torch.enable_grad():
            self._images = images.detach().requires_grad_()
            self._outputs: tuple[Tensor, ...] = (self._images,)
            for part in self._parts:
                self._outputs = part.forward(self._outputs)

    def pull(self, cotangents: Sequence[Tensor]) -> Tensor:
        """Return the gradient at the images for one at the outputs."""
        pairs = [pair for pair in zip(self._outputs, cotangents, strict=True) if pair[0].requires_grad]
        outputs, given = zip(*((out, cotangent.to(out)) for out, cotangent in pairs))  # autocast may have made it half
        (gradient,) = torch.autograd.grad(outputs, self._images, given, retain_graph=True)
        return gradient

    def push(self, tangent: Tensor) -> tuple[Tensor, ...]:
        """Return the tangents at the outputs for one at the images."""
        tangents: tuple[Tensor | None, ...] = (tangent,)
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
        self._values: dict[fx.Node, Any] = {}
        self._needed: set[fx.Node] = set()
        for node in part.graph.nodes:
            if self._is(node, {nn.ReLU}):
                self._needed.add(node)
            elif not self._is(node, _AFFINE):
                self._needed.update(node.all_input_nodes)

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(self.run(*inputs))

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self._needed:
            self._values[n] = map_aggregate(value, lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf)
        return value

    def push(self, tangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        found: dict[fx.Node, Any] = {}
        given = iter(tangents)
        *nodes, output = self.graph.nodes
        for node in nodes:
            found[node] = next(given) if node.op == "placeholder" else self._push_through(node, found)
        return tuple(found[node] for node in output.args[0])

    def _push_through(self, node: fx.Node, found: dict[fx.Node, Any]) -> Any:
        if all(found[source] is None for source in node.all_input_nodes):
            return None
        if self._is(node, _AFFINE):
            module = self.fetch_attr(str(node.target))
            added = {name: getattr(module, name, None) for name in _ADDED}
            without = {name: torch.zeros_like(value) for name, value in added.items() if value is not None}
            return functional_call(module, without, (found[node.all_input_nodes[0]],))
        if self._is(node, {nn.ReLU}):
            return torch.ops.aten.threshold_backward(found[node.all_input_nodes[0]], self._values[node], 0)
        with forward_ad.dual_level():
            args, kwargs = fx.map_arg(
                (node.args, node.kwargs), lambda source: _dual(self._values[source], found[source])
            )
            return map_aggregate(getattr(self, node.op)(node.target, args, dict(kwargs)), _tangent)

    def _is(self, node: fx.Node, kinds: set[type[nn.Module]]) -> bool:
        if node.op != "call_module":
            return False
        module: nn.Module = self.fetch_attr(str(node.target))
        return type(module) in kinds and is_plain(module) and not module.training


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
