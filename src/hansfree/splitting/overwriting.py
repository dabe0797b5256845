"""Give a trunk back the in-place activations and sums that tracing took from it, where nobody can tell.

A trunk without them asks for fresh memory after every convolution, which made the pass over the images a tenth slower
than the model's own forward pass.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from hansfree.splitting.inplace import is_dropout_like

# Modules whose output is memory of its own, never their input or a view of it.
_FRESH = (_ConvNd, _BatchNorm, nn.Linear)
_SUMS = (operator.add, torch.add)


def overwriting(trunk: nn.Module) -> nn.Module:
    """Return the same trunk with activations and sums that overwrite what only they read; for passes without gradients.

    It shares all weights with ``trunk``, which stays as it is. A trunk that is no graph is returned itself.
    """
    if not isinstance(trunk, fx.GraphModule):
        return trunk
    graph = fx.Graph()
    graph.output(graph.graph_copy(trunk.graph, {}))
    result = fx.GraphModule(trunk, graph, type(trunk).__name__)
    for node in result.graph.nodes:
        if _is_activation(result, node) and _is_its_own(result, node.all_input_nodes[0]):
            module = copy.copy(result.get_submodule(str(node.target)))
            module.inplace = True  # type: ignore[assignment]  # a plain flag, not a parameter
            # A copy of its own, as the same module may serve elsewhere, where its input is read again.
            path = f"overwriting_{node.name}"
            result.add_submodule(path, module)
            node.target = path
        elif _is_sum(node):
            own = [summand for summand in node.args if summand.op == "call_module" and _is_its_own(result, summand)]
            if own:
                node.args = (own[0], *(summand for summand in node.args if summand is not own[0]))
                node.target = add_into
    result.recompile()
    return result


def add_into(target: Tensor, other: Any) -> Tensor:
    """Add to the first tensor itself, where it can hold the sum."""
    fits = isinstance(other, Tensor) and target.shape == other.shape and target.dtype == other.dtype
    result: Tensor = target.add_(other) if fits else target + other
    return result


def _is_activation(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.op != "call_module" or len(node.all_input_nodes) != 1:
        return False
    module = graph.get_submodule(str(node.target))
    return getattr(module, "inplace", None) is False and not is_dropout_like(module)


def _is_sum(node: fx.Node) -> bool:
    # Of two different nodes: a tensor and a number have one, and so has a tensor that is added to itself.
    return node.target in _SUMS and not node.kwargs and len(node.args) == 2 == len(node.all_input_nodes)


def _is_its_own(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Tell whether the node's output is memory of its own, and read only once."""
    if len(node.users) != 1:
        return False
    if node.op == "call_module":
        return isinstance(graph.get_submodule(str(node.target)), _FRESH)
    return node.target in (*_SUMS, add_into)
