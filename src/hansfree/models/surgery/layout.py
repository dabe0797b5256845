"""Find the axis of the channels in a layer's output, from the operations that computed it.

hansfree keeps maps as ``(n, channels, height, width)`` and tokens as ``(n, tokens, channels)``. Where a model does not
(Swin), the cut permutes the axes behind the trunk and back before phi.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from hansfree.errors import SplitError
from hansfree.models.surgery.graph import eval_copy, operation_name, trace
from hansfree.models.surgery.hooked import run_recorded
from hansfree.models.surgery.tracing import AxisOrder

CHANNEL_AXIS = {2: 1, 3: 2, 4: 1}  # by the number of axes: flat, tokens, maps
_LAST = {functional.linear, functional.layer_norm, torch.layer_norm}
_TURNED: dict[tuple[int, ...], int] = {(0, 2, 3, 1): 3, (0, 3, 1, 2): 1}  # where the channels of a map go
# They keep the order of the numbers: the shapes say where the channels are, if anywhere.
_RESHAPING = frozenset(["view", "reshape", "flatten", "unflatten"])
_UNKNOWN = frozenset(["movedim", "moveaxis", "einsum"])


def layer_order(model: nn.Module, layer: str, example: Tensor) -> AxisOrder | None:
    """Return the order into which a layer's axes must be put for hansfree; None where they stand right.

    Where nothing says where the channels are, they are taken to stand right.
    """
    return layer_orders(model, [layer], example)[layer]


def layer_orders(model: nn.Module, layers: Sequence[str], example: Tensor) -> dict[str, AxisOrder | None]:
    """Return the same for many layers; of a model that can be traced, by one run."""
    try:
        traced = trace(model, share=True)
    except SplitError:
        own = eval_copy(model, share=True)
        return {layer: _order(*_axis_of_last_inside(own, layer, example)) for layer in layers}
    nodes = {layer: traced.find(layer) for layer in layers}
    recorder = GraphRecorder(traced.root, traced.graph, example)
    return {layer: recorder.order(node) for layer, node in nodes.items()}


def trunk_order(trunk: nn.Module, layer: str, example: Tensor) -> AxisOrder | None:
    """Return the same for a trunk, whose first output is the layer's."""
    if not isinstance(trunk, fx.GraphModule):
        return _order(*_axis_of_last_inside(trunk.get_submodule("model"), layer, example))
    outputs: Any = next(node for node in trunk.graph.nodes if node.op == "output").args[0]
    return GraphRecorder(trunk, trunk.graph, example).order(outputs[0])


def _order(axis: int | None, ndim: int) -> AxisOrder | None:
    if axis is None or axis == CHANNEL_AXIS.get(ndim, axis):
        return None
    others = [other for other in range(ndim) if other != axis]
    others.insert(CHANNEL_AXIS[ndim], axis)
    return tuple(others)


class GraphRecorder(fx.Interpreter):
    """One run of a graph: the shape of every tensor, and which of its axes holds the channels."""

    def __init__(self, root: nn.Module, graph: fx.Graph, example: Tensor) -> None:
        super().__init__(root, graph=graph)
        self.axes: dict[fx.Node, int] = {}  # none where nothing says it
        self.shapes: dict[fx.Node, torch.Size] = {}
        with torch.no_grad():
            self.run(example.clone())

    def order(self, node: fx.Node) -> AxisOrder | None:
        """Return the order into which a node's axes must be put for hansfree."""
        return _order(self.axes.get(node), len(self.shapes.get(node, ())))

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and record its output."""
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n] = result.shape
            if result.ndim > 1 and (axis := self._axis(n, result.ndim)) is not None:
                self.axes[n] = axis
        return result

    def _axis(self, node: fx.Node, ndim: int) -> int | None:
        if node.op == "placeholder":
            return 1
        name = operation_name(node)
        module = self.fetch_attr(str(node.target)) if node.op == "call_module" else None
        if node.target in _LAST:
            return ndim - 1
        if module is not None and (own := _axis_of(module, ndim)) is not None:
            return own
        source = next((parent for parent in node.all_input_nodes if parent in self.axes), None)
        if source is None or (module is None and name in _UNKNOWN):
            return None
        if isinstance(module, nn.Flatten | nn.Unflatten) or (module is None and name in _RESHAPING):
            return _reshaped(self.axes[source], self.shapes[source], self.shapes[node])
        if len(self.shapes[source]) != ndim:
            return None
        order = list(range(ndim))
        if module is not None:
            turned = _permutation(module)
            is_known = turned is not None or type(module).__module__.startswith("torch.nn.")
            if not is_known and self.shapes[source] != self.shapes[node]:
                return None  # it may turn or cut the axes in any way, as the windows of MaxViT
            order = turned or order
        elif name == "permute":
            dims: Any = node.kwargs.get("dims", node.args[1:])
            order = list(dims[0] if isinstance(dims[0], (tuple, list)) else dims)
        elif name in ("transpose", "swapaxes", "swapdims", "mT"):
            given = (-2, -1) if name == "mT" else (*node.args, *node.kwargs.values())
            first, second = (axis for axis in given if isinstance(axis, int))
            order[first], order[second] = order[second], order[first]
        return [axis % ndim for axis in order].index(self.axes[source])


def _reshaped(axis: int, before: torch.Size, after: torch.Size) -> int | None:
    """Return the axis of the channels after a reshape; None where it splits them."""
    if axis == len(before) - 1 and after[-1] == before[-1]:
        return len(after) - 1
    return axis if before[: axis + 1] == after[: axis + 1] else None


def _axis_of(module: nn.Module, ndim: int) -> int | None:
    """Return the axis at which the module itself puts the channels; None where it leaves them."""
    if isinstance(module, _ConvNd | _BatchNorm | nn.GroupNorm):
        return 1
    # By their forward: torchvision's LayerNorm2d is a LayerNorm that turns its input there and back.
    is_linear = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    is_norm = isinstance(module, nn.LayerNorm) and type(module).forward is nn.LayerNorm.forward
    if is_linear or (is_norm and len(module.normalized_shape) == 1):  # type: ignore[arg-type]
        return ndim - 1
    return None


def _permutation(module: nn.Module) -> list[int] | None:
    """Return the order into which a module turns the axes, torchvision's ``Permute``; None where it does not."""
    # By name, because torchvision need not be loaded for a model that does not use it.
    return list(module.dims) if type(module).__name__ == "Permute" else None  # type: ignore[arg-type]


def _axis_of_last_inside(model: nn.Module, layer: str, example: Tensor) -> tuple[int | None, int]:
    """Without a graph, ask the last module that was called in the layer, or is it, and puts channels somewhere."""
    order, outputs = run_recorded(model, example)
    whole = outputs.get(layer)
    if not isinstance(whole, Tensor):
        return None, 0
    ndim = whole.ndim
    for path in reversed(order):
        if path != layer and not path.startswith(f"{layer}."):
            continue
        output, module = outputs[path], model.get_submodule(path)
        if isinstance(output, Tensor) and output.ndim == ndim and ndim in (3, 4):
            turned = _permutation(module)
            axis = _axis_of(module, ndim) if turned is None else _TURNED.get(tuple(turned))
            if axis is not None:
                # What follows it in the layer without being a module may have turned the axes: then nothing is known.
                return (axis if whole.shape[axis] == output.shape[axis] else None), ndim
    return None, ndim
