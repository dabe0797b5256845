"""A head as a row of stages: its linear layers, whose product values and tangents can share, and what runs between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import fx, nn


@dataclass(frozen=True, eq=False)
class Stage:
    """Part of a head: a linear layer, which is known by its path, or whatever runs between two of them."""

    module: nn.Module
    path: str | None = None


@dataclass(frozen=True, eq=False)
class HeadParts:
    """A head, whole and in stages: the first takes the head's inputs, each other one what the stage before returns."""

    whole: nn.Module
    stages: tuple[Stage, ...]

    @property
    def entry(self) -> str | None:
        """The path of the linear layer that the head starts with, where it does."""
        return self.stages[0].path

    @property
    def is_linear(self) -> bool:
        """Whether one linear layer is all there is."""
        return len(self.stages) == 1 and self.entry is not None


def head_in_stages(head: nn.Module) -> HeadParts:
    """Part a head at every linear layer past which nothing else is handed on; one stage where that cannot be told."""
    if not isinstance(head, fx.GraphModule) or _is_tied(head):
        return HeadParts(head, (Stage(head),))
    first, *nodes = [node for node in head.graph.nodes if node.op != "output"]
    if any(node.op == "placeholder" for node in nodes):
        return HeadParts(head, (Stage(head),))
    return HeadParts(head, tuple(_stages(head, first, nodes)))


def is_plain(module: nn.Module) -> bool:
    """Tell whether a module does what its class says: hooks (weight norm is one) may change that."""
    has_hooks = bool(module._forward_hooks or module._forward_pre_hooks)
    return not has_hooks and "forward" not in vars(module)


def _stages(head: fx.GraphModule, given: fx.Node, nodes: Sequence[fx.Node]) -> Iterator[Stage]:
    between: list[fx.Node] = []
    for place, node in enumerate(nodes):
        if not (_is_lone_linear(head, node) and _is_passage(node, [given, *nodes[:place]])):
            between.append(node)
            continue
        if between:
            yield Stage(_part(head, given, between))
        yield Stage(head.get_submodule(str(node.target)), str(node.target))
        given, between = node, []
    if between:
        yield Stage(_part(head, given, between))


def _is_lone_linear(head: fx.GraphModule, node: fx.Node) -> bool:
    """Tell whether the node is the only call of a layer of which weight and bias say everything."""
    if node.op != "call_module":
        return False
    module = head.get_submodule(str(node.target))
    calls = sum(other.op == "call_module" and other.target == node.target for other in head.graph.nodes)
    return type(module) is nn.Linear and is_plain(module) and calls == 1  # a parametrized one has a class of its own


def _is_passage(node: fx.Node, before: Sequence[fx.Node]) -> bool:
    """Tell whether all that follows the node depends on what came before through the node alone."""
    seen = {*before, node}
    return all(user in seen for other in before for user in other.users)


def _part(head: fx.GraphModule, given: fx.Node, nodes: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    new = {given: graph.placeholder("given")}
    for node in nodes:
        new[node] = graph.node_copy(node, new.__getitem__)
    graph.output(new[nodes[-1]])
    return fx.GraphModule(head, graph)


def _is_tied(module: nn.Module) -> bool:
    """Tell whether a parameter has several names: a stage would know it by one that nobody else uses."""
    return len(list(module.parameters())) < len(list(module.named_parameters(remove_duplicate=False)))
