"""A frozen trunk made faster: each batch norm folded into its convolution, and images with their channels last.

Both only round differently. On two cores they take a quarter of ResNet-18's time and more than half of
EfficientNet-B0's (docs/decisions/0030).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from hansfree.splitting.stages import is_plain

_CONVOLUTIONS: set[type[nn.Module]] = {nn.Conv1d, nn.Conv2d, nn.Conv3d}  # by exact class: a subclass may do more
_NORMS: set[type[nn.Module]] = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d}


def folded(trunk: nn.Module) -> nn.Module:
    """Return a faster trunk with convolutions of its own; the given one stays as it is.

    A trunk that is no graph is returned itself, and so is whatever does more than its class says.
    """
    if not isinstance(trunk, fx.GraphModule):
        return trunk
    graph = fx.Graph()
    graph.output(graph.graph_copy(trunk.graph, {}))
    result = fx.GraphModule(trunk, graph, type(trunk).__name__)
    for node in list(result.graph.nodes):
        if _is(result, node, _CONVOLUTIONS):
            _fold(result, node)
    if _takes_any_layout(result):
        _put_channels_last(result)
    result.recompile()
    return result


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
    """Tell whether nothing in the graph may insist on how its input lies in memory: torch's own modules do not."""
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
