"""Cut a traced model at a layer: what runs before it, what follows unchanged, and what is trained."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hansfree.errors import SplitError
from hansfree.models.surgery.graph import Traced, is_dropout_like, not_logits, returns_several, scalar_nodes
from hansfree.models.surgery.tracing import AxisOrder, inverse, reach

Train = Literal["all", "last"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Partition:
    """The three parts of a model, graph modules or cut by hooks."""

    root: nn.Module = field(repr=False)  # the copy of the model whose modules they call
    trunk: nn.Module
    phi: nn.Module
    head: nn.Module
    trainable: tuple[str, ...]  # names of parameters, as in the model's own state_dict
    parameters_after: int  # how many numbers the parameters after the layer hold, trained or not
    random: tuple[nn.Module, ...] = field(repr=False)  # of the head: active while it is trained
    may_change: tuple[str, ...] = ()  # cut by hooks, the trunk holds the whole model: what some training may change

    def __post_init__(self) -> None:
        self.root.requires_grad_(False)
        for name in self.trainable:
            self.root.get_parameter(name).requires_grad_(True)


def permute_layer(trunk: fx.GraphModule, phi: fx.GraphModule, order: AxisOrder) -> None:
    """Turn the axes of the layer's output at the end of the trunk, and back at the start of phi."""
    graph = trunk.graph
    result = next(node for node in graph.nodes if node.op == "output")
    first, *others = result.args[0]
    with graph.inserting_before(result):
        result.args = ((graph.call_method("permute", (first, order)), *others),)
    trunk.recompile()
    graph = phi.graph
    given = next(node for node in graph.nodes if node.op == "placeholder")
    readers = set(given.users)
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        whole = fx.Proxy(given).permute(inverse(order)).contiguous()  # what follows may want a view of it
    given.replace_all_uses_with(whole.node, delete_user_cb=readers.__contains__)
    phi.recompile()


def output_node(traced: Traced) -> fx.Node:
    """Return the node of the logits; a model that returns anything but one tensor is refused."""
    result = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    if not isinstance(result, fx.Node):
        raise not_logits(type(traced.root).__name__, result)
    return result


def is_norm_parameter(root: nn.Module, name: str) -> bool:
    """Return whether the parameter is the affine part of a batch norm, which is trained on request only."""
    return isinstance(root.get_submodule(name.rpartition(".")[0]), _BatchNorm)


class Flow:
    """What the graph says whichever layer is asked for: made once, and used for every cut."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.nodes: list[fx.Node] = list(traced.graph.nodes)
        self.output = output_node(traced)
        scalars = scalar_nodes(traced.graph)
        self.batch_sizes = {node for node in scalars if _is_batch_size(node)}
        self.free: set[fx.Node] = set()
        for node in self.nodes:
            inputs_free = node.op not in ("placeholder", "output") and self.free.issuperset(node.all_input_nodes)
            if node in scalars or inputs_free:
                self.free.add(node)
        # By every path, because tied parameters have several.
        self.parameters = dict(traced.root.named_parameters(remove_duplicate=False))
        self.norms = {name for name in self.parameters if is_norm_parameter(traced.root, name)}
        self.modules = dict(traced.root.named_modules())
        self.parameters_of = {node: self._names(node) for node in self.nodes}

    def _names(self, node: fx.Node) -> list[str]:
        """Return the names of the floating-point parameters that the node uses itself."""
        module = self.traced.module_of(node)
        if module is not None:
            names = [f"{node.target}.{name}" for name, _ in module.named_parameters()]
        else:
            names = [str(node.target)] if node.op == "get_attr" and node.target in self.parameters else []
        return [name for name in names if self.parameters[name].is_floating_point()]


class GraphCut:
    """The graph seen from one layer, and cut there by data flow.

    Whatever does not depend on the layer's output belongs to the trunk. Sizes and functions of parameters alone are no
    activations: every part that needs them computes them itself.
    """

    def __init__(self, flow: Flow, layer: str) -> None:
        self.flow = flow
        self.traced = flow.traced
        self.nodes = flow.nodes
        self.output = flow.output
        self.layer = layer
        self.kind = type(self.traced.root).__name__
        self.cut = self.traced.find(layer)
        self.descendants = reach(self.cut.users, lambda node: node.users)

    def parts(self, *, train: Train, train_norm: bool) -> Partition:
        """Build trunk, phi and head."""
        live, after = self._around()
        trained = self._trained(after, train=train, train_norm=train_norm)
        fixed = self._fixed(after, trained, train=train)
        found = self._boundary(lambda node: node in fixed or node in live)
        # What phi hands on keeps the trunk's order, so that a phi without operations returns what it is given.
        boundary = [*(node for node in live if node in found), *(node for node in found if node not in live)]
        self._check_tied(self._needed(live, stop=set()), trained)
        head = self._build("Head", boundary, self.output)
        return Partition(
            root=self.traced.root,
            trunk=self._build("Trunk", [n for n in self.nodes if n.op == "placeholder"], live),
            phi=self._build("Phi", live, boundary),
            head=head,
            trainable=tuple(trained),
            parameters_after=self._count(after),
            random=tuple(_own_random_modules(head)),
        )

    def parameters_after(self) -> int:
        """Return how many numbers the parameters after the layer hold; an error where the layer cannot be used."""
        live, after = self._around()
        self._check_tied(self._needed(live, stop=set()), self._trained(after, train="all", train_norm=False))
        return self._count(after)

    def _count(self, nodes: Iterable[fx.Node]) -> int:
        used = {self.flow.parameters[name] for node in nodes for name in self.flow.parameters_of[node]}
        return sum(parameter.numel() for parameter in used)

    def _around(self) -> tuple[list[fx.Node], list[fx.Node]]:
        """Return the trunk's tensors that are needed after the layer, its output first, and the nodes after them."""
        if self.cut is self.output:
            raise SplitError(
                f"{self.layer!r} is the output of {self.kind}: nothing follows it. Choose an earlier layer."
            )
        if self.output not in self.descendants:
            raise SplitError(f"The output of {self.kind} does not depend on {self.layer!r}. Choose another layer.")
        self._check_tensor(self.cut)
        before = self._boundary(lambda node: node not in self.descendants)
        live = [self.cut, *(node for node in before if node is not self.cut)]
        return live, self._needed([self.output], stop=set(live))

    def _check_tensor(self, node: fx.Node) -> None:
        if returns_several(self.traced, node):
            raise SplitError(f"{node.name!r} of {self.kind} returns several tensors and cannot be cached as one.")

    def _check_tied(self, trunk: Iterable[fx.Node], trained: Sequence[str]) -> None:
        frozen = {id(self.flow.parameters[name]): name for node in trunk for name in self.flow.parameters_of[node]}
        for name in trained:
            if id(self.flow.parameters[name]) in frozen:
                raise SplitError(
                    f"{name!r} of {self.kind} is also used before {self.layer!r}: training it would change the frozen "
                    "part. Choose an earlier layer, or train='last'."
                )

    def _needed(self, wanted: Iterable[fx.Node], *, stop: set[fx.Node], is_trunk: bool = False) -> list[fx.Node]:
        """Return, in order, the nodes that ``wanted`` needs; those in ``stop`` are given and not counted."""

        def inputs(node: fx.Node) -> Iterable[fx.Node]:
            # The number of images is read off the given tensors: the images themselves need not be carried for it.
            is_given = not is_trunk and stop and node in self.flow.batch_sizes
            return () if is_given else (parent for parent in node.all_input_nodes if parent not in stop)

        seen = reach((node for node in wanted if node not in stop), inputs)
        return [node for node in self.nodes if node in seen]

    def _boundary(self, is_given: Callable[[fx.Node], bool]) -> list[fx.Node]:
        """Return, in order, the tensors that the output needs and ``is_given`` holds."""
        given = {node for node in self.nodes if is_given(node) and node not in self.flow.free}
        needed = [n for n in self._needed([self.output], stop=given) if n not in self.flow.batch_sizes]
        found = {parent for node in needed for parent in node.all_input_nodes} & given
        for node in found:
            self._check_tensor(node)
        return [node for node in self.nodes if node in found]

    def _trained(self, after: Sequence[fx.Node], *, train: Train, train_norm: bool) -> list[str]:
        eligible = [
            [name for name in self.flow.parameters_of[node] if train_norm or name not in self.flow.norms]
            for node in after
        ]
        groups = [names for names in eligible if names]
        if not groups:
            raise SplitError(f"No trainable parameter of {self.kind} follows {self.layer!r}. Choose an earlier layer.")
        names = groups[-1] if train == "last" else [name for group in groups for name in group]
        return list({id(self.flow.parameters[name]): name for name in reversed(names)}.values())[::-1]

    def _fixed(self, after: Sequence[fx.Node], trained: Sequence[str], *, train: Train) -> set[fx.Node]:
        """Return the nodes after the layer that training does not change and that are the same in every step."""
        trained_ids = {id(self.flow.parameters[name]) for name in trained}
        is_trained = {
            node: any(id(self.flow.parameters[n]) in trained_ids for n in self.flow.parameters_of[node])
            for node in after
        }
        # With train="last" the frozen layers after the cut belong to the frozen part, and so does dropout before them.
        frozen_later: set[fx.Node] = set()
        for node in reversed(after):
            is_frozen = bool(self.flow.parameters_of[node]) and not is_trained[node]
            if is_frozen or not frozen_later.isdisjoint(node.users):
                frozen_later.add(node)
        fixed: set[fx.Node] = set()
        for node in after:
            module = self.traced.module_of(node)
            is_random = (
                module is not None and is_dropout_like(module) and not (train == "last" and node in frozen_later)
            )
            inputs = [parent for parent in node.all_input_nodes if parent in is_trained]
            if not is_trained[node] and not is_random and fixed.issuperset(inputs):
                fixed.add(node)
        return fixed

    def _build(self, name: str, given: Sequence[fx.Node], wanted: fx.Node | Sequence[fx.Node]) -> fx.GraphModule:
        """Return the graph that computes ``wanted`` from ``given``; several are returned as a tuple."""
        graph = fx.Graph()
        new: dict[fx.Node, fx.Node] = {}
        outputs = [wanted] if isinstance(wanted, fx.Node) else list(wanted)
        needed = self._needed(outputs, stop=set(given), is_trunk=name == "Trunk")
        for node in given:
            is_input = node.op == "placeholder"
            is_read = node in outputs or any(node in reader.all_input_nodes for reader in needed)
            if not is_input or name != "Trunk" or is_read or node is given[0]:
                new[node] = graph.placeholder(node.name)
        for node in needed:
            if name != "Trunk" and node in self.flow.batch_sizes:
                new[node] = graph.call_method("size", (new[given[0]], 0))
            else:
                new[node] = graph.node_copy(node, new.__getitem__)
        graph.output(new[wanted] if isinstance(wanted, fx.Node) else tuple(new[node] for node in wanted))
        graph.lint()
        return fx.GraphModule(self.traced.root, graph, name)


def _own_random_modules(head: nn.Module) -> Iterator[nn.Module]:
    """Yield the dropout of the head, as copies of its own: in the trunk the same module stays off."""
    for name, module in list(head.named_modules()):
        if is_dropout_like(module):
            if next(module.parameters(), None) is None:
                module = copy.deepcopy(module)
                outer, _, last = name.rpartition(".")
                setattr(head.get_submodule(outer), last, module)
            yield module


def _is_batch_size(node: fx.Node) -> bool:
    """Return whether the node is ``x.size(0)`` or ``x.shape[0]`` of the model's input."""
    if len(node.args) != 2 or node.args[1] != 0 or not isinstance(source := node.args[0], fx.Node):
        return False
    if node.op == "call_method" and node.target == "size":
        return source.op == "placeholder"
    is_shape = source.target == "size" or (source.target is getattr and source.args[1] == "shape")
    is_item = node.op == "call_function" and node.target is operator.getitem
    return bool(is_item and is_shape and source.all_input_nodes[0].op == "placeholder")
