"""The linear layer that a head starts with, apart from the rest: values and tangents can share its product."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx, nn


@dataclass(frozen=True, eq=False)
class HeadParts:
    """A head; and where it starts with a linear layer, that layer's path and the head without it."""

    whole: nn.Module
    entry: str | None
    rest: nn.Module

    @property
    def is_linear(self) -> bool:
        """Whether the linear layer is all there is."""
        return self.entry is not None and all(node.op in ("placeholder", "output") for node in self.rest.graph.nodes)  # type: ignore[union-attr]


def leading_linear(head: nn.Module) -> HeadParts:
    """Look for a linear layer that alone reads the head's only input and is called once."""
    if not isinstance(head, fx.GraphModule):
        return HeadParts(head, None, head)
    inputs = [node for node in head.graph.nodes if node.op == "placeholder"]
    users = [user for node in inputs for user in node.users]
    if len(inputs) != 1 or len(users) != 1 or users[0].op != "call_module":
        return HeadParts(head, None, head)
    path = str(users[0].target)
    calls = sum(node.op == "call_module" and node.target == path for node in head.graph.nodes)
    linear = head.get_submodule(path)
    # By exact class: a parametrized layer has a class of its own.
    if type(linear) is not nn.Linear or not is_plain(linear) or calls != 1:
        return HeadParts(head, None, head)
    graph = fx.Graph()
    graph.output(graph.graph_copy(head.graph, {}))
    (entry,) = (node for node in graph.nodes if node.op == "call_module" and node.target == path)
    entry.replace_all_uses_with(entry.all_input_nodes[0])
    graph.erase_node(entry)
    return HeadParts(head, path, fx.GraphModule(head, graph))


def is_plain(module: nn.Module) -> bool:
    """Tell whether a module does what its class says: hooks (weight norm is one) may change that."""
    has_hooks = bool(module._forward_hooks or module._forward_pre_hooks)
    return not has_hooks and "forward" not in vars(module)
