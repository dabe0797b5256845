"""Where the channels of a layer's maps stand: an array does not say, what computed it does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from hansfree.errors import DataError
from hansfree.splitting.hooked import run_recorded
from hansfree.splitting.inplace import operation_name

_LAST = {functional.linear, functional.layer_norm, torch.layer_norm}
_TURNED: dict[tuple[int, ...], int] = {(0, 2, 3, 1): 3, (0, 3, 1, 2): 1}  # where the channels of a map go
# They deal the numbers out anew, so that where the channels stood before says nothing.
_REARRANGING = frozenset(["view", "reshape", "unflatten", "movedim", "moveaxis", "einsum"])


def check_layout(trunk: nn.Module, layer: str, example: Tensor) -> None:
    """Refuse maps known to have their channels elsewhere than ``(n, channels, height, width)``, as those of Swin.

    Taken for channels, their rows would give a direction in the picture's height without a word.
    """
    with torch.no_grad():
        if isinstance(trunk, fx.GraphModule):
            axis = _AxisRecorder(trunk).of_output(example)
        else:
            axis = _axis_of_last_inside(trunk, layer, example)
    if axis not in (None, 1):
        where = "last (n, height, width, channels)" if axis == 3 else f"along axis {axis}"
        raise DataError(
            f"The output of {layer!r} has its channels {where}, which is not supported yet; choose a layer whose "
            "output is (n, channels, height, width)."
        )


class _AxisRecorder(fx.Interpreter):
    """Run a graph, and for every tensor with four axes follow which of them holds the channels."""

    def __init__(self, trunk: fx.GraphModule) -> None:
        super().__init__(trunk)
        self.axes: dict[fx.Node, int] = {}
        self.wanted = next(node for node in trunk.graph.nodes if node.op == "output").args[0][0]

    def of_output(self, example: Tensor) -> int | None:
        self.run(example.clone())
        return self.axes.get(self.wanted)

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor) and result.ndim == 4 and (axis := self._axis(n)) is not None:
            self.axes[n] = axis
        return result

    def _axis(self, node: fx.Node) -> int | None:
        if node.op == "placeholder":
            return 1
        name = operation_name(node)
        module = self.fetch_attr(str(node.target)) if node.op == "call_module" else None
        if node.target in _LAST or (module is not None and _axis_of(module) is not None):
            return 3 if module is None else _axis_of(module)
        before = next((self.axes[parent] for parent in node.all_input_nodes if parent in self.axes), None)
        if before is None or (module is None and name in _REARRANGING):
            return None
        order = list(range(4))
        if module is not None:
            order = _permutation(module) or order
        elif name == "permute":
            dims: Any = node.kwargs.get("dims", node.args[1:])
            order = list(dims[0] if isinstance(dims[0], (tuple, list)) else dims)
        elif name in ("transpose", "swapaxes", "swapdims", "mT"):
            given = (-2, -1) if name == "mT" else (*node.args, *node.kwargs.values())
            first, second = (axis for axis in given if isinstance(axis, int))
            order[first], order[second] = order[second], order[first]
        return [axis % 4 for axis in order].index(before)


def _axis_of(module: nn.Module) -> int | None:
    """Return the axis at which the module itself puts the channels of a map; None where it leaves them."""
    if isinstance(module, _ConvNd | _BatchNorm | nn.GroupNorm):
        return 1
    # By their forward: torchvision's LayerNorm2d is a LayerNorm that turns its input there and back.
    is_linear = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    is_norm = isinstance(module, nn.LayerNorm) and type(module).forward is nn.LayerNorm.forward
    if is_linear or (is_norm and len(module.normalized_shape) == 1):  # type: ignore[arg-type]
        return 3
    return None


def _permutation(module: nn.Module) -> list[int] | None:
    """Return the order into which a module turns the axes, torchvision's ``Permute``; None where it does not."""
    # By name, because torchvision need not be loaded for a model that does not use it.
    return list(module.dims) if type(module).__name__ == "Permute" else None  # type: ignore[arg-type]


def _axis_of_last_inside(trunk: nn.Module, layer: str, example: Tensor) -> int | None:
    """Without a graph, ask the last module that was called in the layer, or is it, and puts channels somewhere."""
    model: nn.Module = trunk.get_submodule("model")
    order, outputs = run_recorded(model, example)
    for path in reversed(order):
        if path != layer and not path.startswith(f"{layer}."):
            continue
        output, module = outputs[path], model.get_submodule(path)
        if isinstance(output, Tensor) and output.ndim == 4:
            turned = _permutation(module)
            axis = _axis_of(module) if turned is None else _TURNED.get(tuple(turned))
            if axis is not None:
                return axis
    return None
