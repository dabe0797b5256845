"""A faster trunk for the pass: fused batch norms, in-place activations."""

from __future__ import annotations

import copy
import operator

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.fusion import fuse_conv_bn_eval

from hansfree.models.surgery.cut import is_plain
from hansfree.models.surgery.graph import is_dropout_like

_CONVOLUTIONS: set[type[nn.Module]] = {nn.Conv1d, nn.Conv2d, nn.Conv3d}  # by exact class: a subclass may do more
_NORMS: set[type[nn.Module]] = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}


def fuse_for_inference(trunk: nn.Module) -> nn.Module:
    """Return a faster trunk with convolutions of its own; the given one stays as it is.

    A trunk that is no graph is returned itself, and so is whatever does more than its class says.
    """
    if not isinstance(trunk, fx.GraphModule):
        return trunk
    result = _own_graph(trunk)
    for node in list(result.graph.nodes):
        if _is(result, node, _CONVOLUTIONS):
            _fold(result, node)
    if _takes_any_layout(result):
        _put_channels_last(result)
    result.recompile()
    return result


def _own_graph(trunk: fx.GraphModule) -> fx.GraphModule:
    """Return the same modules behind a graph of its own."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(trunk.graph, {}))
    return fx.GraphModule(trunk, graph, type(trunk).__name__)


def _fold(result: fx.GraphModule, node: fx.Node) -> None:
    """Give a convolution its own weights, those of a batch norm that alone reads it included."""
    module = copy.deepcopy(result.get_submodule(str(node.target)))
    reader = next(iter(node.users)) if len(node.users) == 1 else None
    if reader is not None and _is(result, reader, _NORMS):
        norm = result.get_submodule(str(reader.target))
        if not norm.training and norm.running_mean is not None:
            module = fuse_conv_bn_eval(module, norm)  # type: ignore[type-var, arg-type]
            reader.replace_all_uses_with(node)
            result.graph.erase_node(reader)
    node.target = f"folded_{node.name}"
    result.add_submodule(node.target, module)


def _takes_any_layout(result: fx.GraphModule) -> bool:
    """Return whether nothing in the graph may insist on how its input lies in memory: torch's own modules do not."""
    called = [result.get_submodule(str(node.target)) for node in result.graph.nodes if node.op == "call_module"]
    on_cpu = all(parameter.device.type == "cpu" for parameter in result.parameters())  # measured there alone
    return on_cpu and all(type(module).__module__.startswith(("torch.", "torchvision.")) for module in called)


def _put_channels_last(result: fx.GraphModule) -> None:
    for node in result.graph.nodes:
        if node.op == "placeholder":
            with result.graph.inserting_after(node):
                turned = result.graph.call_function(channels_last, (node,))
            node.replace_all_uses_with(turned, delete_user_cb=lambda user, turned=turned: user is not turned)
        elif _is(result, node, {nn.Conv2d}):
            result.get_submodule(str(node.target)).to(memory_format=torch.channels_last)
        elif node.op == "call_method" and node.target == "view":
            node.target = "reshape"  # a view would refuse this layout


def channels_last(images: Tensor) -> Tensor:
    """Return images with their channels last in memory; anything else as it is."""
    return images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images


def _is(graph: fx.GraphModule, node: fx.Node, kinds: set[type[nn.Module]]) -> bool:
    if node.op != "call_module":
        return False
    module = graph.get_submodule(str(node.target))
    return type(module) in kinds and is_plain(module)


# Modules whose output is memory of its own, never their input or a view of it.
_FRESH = (_ConvNd, _BatchNorm, nn.Linear)


def make_inplace(trunk: nn.Module) -> nn.Module:
    """Return the same trunk with activations that overwrite what only they read; for passes without gradients.

    It shares all weights with ``trunk``, which stays as it is. A trunk that is no graph is returned itself.
    """
    if not isinstance(trunk, fx.GraphModule):
        return trunk
    result = _own_graph(trunk)
    for node in result.graph.nodes:
        if _is_activation(result, node) and _is_its_own(result, node.all_input_nodes[0]):
            module = copy.copy(result.get_submodule(str(node.target)))
            module.inplace = True  # type: ignore[assignment]  # a plain flag, not a parameter
            # A copy of its own, as the same module may serve elsewhere, where its input is read again.
            path = f"overwriting_{node.name}"
            result.add_submodule(path, module)
            node.target = path
    result.recompile()
    return result


def _is_activation(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.op != "call_module" or len(node.all_input_nodes) != 1:
        return False
    module = graph.get_submodule(str(node.target))
    return getattr(module, "inplace", None) is False and not is_dropout_like(module)


def _is_its_own(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether the node's output is memory of its own, and read only once."""
    if len(node.users) != 1:
        return False
    if node.op == "call_module":
        return isinstance(graph.get_submodule(str(node.target)), _FRESH)
    return node.target in (operator.add, torch.add)
