"""Give a trunk back the in-place activations that tracing took from it, where nobody can tell.

A trunk without them asks for fresh memory after every convolution, which made the pass over the images a tenth slower
than the model's own forward pass.
"""

from __future__ import annotations

import copy

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from hansfree.splitting.inplace import is_dropout_like

# Modules whose output is memory of its own, never their input or a view of it.
_FRESH = (_ConvNd, _BatchNorm, nn.Linear)


def overwriting(trunk: nn.Module) -> nn.Module:
    """Return the same trunk with activations that overwrite what only they read; for passes without gradients.

    It shares all weights with ``trunk``, which stays as it is. A trunk that is no graph is returned itself.
    """
    if not isinstance(trunk, fx.GraphModule):
        return trunk
    graph = fx.Graph()
    graph.output(graph.graph_copy(trunk.graph, {}))
    result = fx.GraphModule(trunk, graph, type(trunk).__name__)
    for node in result.graph.nodes:
        if _may_overwrite(trunk, node):
            module = copy.copy(trunk.get_submodule(str(node.target)))
            module.inplace = True  # type: ignore[assignment]  # a plain flag, not a parameter
            # A copy of its own, as the same module may serve elsewhere, where its input is read again.
            path = f"overwriting_{node.name}"
            result.add_submodule(path, module)
            node.target = path
    result.recompile()
    return result


def _may_overwrite(trunk: fx.GraphModule, node: fx.Node) -> bool:
    if node.op != "call_module" or len(node.all_input_nodes) != 1:
        return False
    module, (source,) = trunk.get_submodule(str(node.target)), node.all_input_nodes
    is_activation = getattr(module, "inplace", None) is False and not is_dropout_like(module)
    if not is_activation or source.op != "call_module" or len(source.users) != 1:
        return False
    return isinstance(trunk.get_submodule(str(source.target)), _FRESH)
