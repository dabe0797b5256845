"""The model as a graph: which operation feeds which, and the name by which a user selects one.

Names are module paths (``features.28``, ``layer4.1``), and where no module stands the enclosing module's path plus
the operation (``layer4.1.add``, the second one ``layer4.1.add_1``), as in torchvision's feature extraction. A module
that is called more than once has one name per call, counted from zero (``layer4.1.relu_0``, ``layer4.1.relu_1``); its
bare path is ambiguous and refused.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError, nearest
from hansfree.splitting.inplace import keep_dropout, operation_name, remove_in_place
from hansfree.splitting.inserted import EditedForward
from hansfree.splitting.tracing import Recorded, record

# Operations that return several tensors; such a node is neither a layer nor a tensor that can be cached.
_SEVERAL = frozenset(["chunk", "split", "unbind", "tensor_split", "topk", "sort", "meshgrid", "native_layer_norm"])
_SIZES = frozenset(["size", "dim", "numel", "ndimension", "is_floating_point"])
# Attributes of a tensor that hold no tensor; `x.mT` and `torch.max(x, 1).values` hold one.
# fmt: off
_FACTS = frozenset([
    "shape", "ndim", "dtype", "device", "layout", "itemsize", "nbytes", "names", "requires_grad", "is_leaf", "is_cpu",
    "is_cuda", "is_meta", "is_mps", "is_nested", "is_quantized", "is_sparse",
])
# fmt: on


@dataclass(frozen=True, eq=False)
class Traced:
    """An eval-mode copy of a model, its graph without in-place operations, and its layers by name."""

    root: nn.Module
    graph: fx.Graph
    layers: dict[str, fx.Node]
    calls: dict[str, tuple[str, ...]]  # modules called more than once: path -> the names of the calls
    returned: type[dict[str, Any]] | None = None  # the class of the output object, which in the graph is a plain dict

    def find(self, layer: str) -> fx.Node:
        """Return the node of ``layer``; the errors name the nearest layer, or the calls of an ambiguous one."""
        if layer in self.layers:
            return self.layers[layer]
        kind = type(self.root).__name__
        if layer in self.calls:
            raise AmbiguousLayerError(ambiguous_sentence(kind, layer, self.calls[layer]))
        if layer in dict(self.root.named_modules()):
            raise LayerNotFoundError(f"{kind} does not call {layer!r} in eval mode, or it returns no tensor.")
        raise LayerNotFoundError(missing_sentence(kind, layer, [*self.layers, *self.calls]))

    def module_of(self, node: fx.Node) -> nn.Module | None:
        """Return the module that ``node`` calls, or None where it calls none."""
        return self.root.get_submodule(str(node.target)) if node.op == "call_module" else None


def ambiguous_sentence(kind: str, layer: str, calls: tuple[str, ...]) -> str:
    """Say that ``layer`` is called more than once, and how to select one call."""
    return f"{kind} calls {layer!r} {len(calls)} times. Choose one of the calls: {', '.join(map(repr, calls))}."


def missing_sentence(kind: str, layer: str, known: list[str]) -> str:
    """Say that there is no such layer, and which one comes nearest."""
    return f"{kind} has no layer {layer!r}.{nearest(layer, known)} `hansfree layers SOURCE --all` lists them."


def eval_copy(model: nn.Module, *, share: bool = False) -> nn.Module:
    """Return a copy in eval mode on the CPU; with ``share`` it holds the very same tensors and must only be read."""
    tensors = [*model.parameters(), *model.buffers()] if share else []
    own = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
    return own if share else own.cpu()


def trace(model: nn.Module, *, share: bool = False) -> Traced:
    """Trace a copy of ``model`` in eval mode.

    Whatever in-place operations overwrite is rewritten so that every node keeps its value: a recorded ``features.28``
    of VGG is otherwise changed by the ReLU that follows.

    Raises:
        SplitError: the model cannot be traced exactly (control flow that depends on data, writes into views).
    """
    root = eval_copy(model, share=share)
    if root._forward_hooks or root._forward_pre_hooks:
        raise SplitError(f"{type(root).__name__} itself has forward hooks, which tracing would drop.")
    in_place = set()
    for path, module in root.named_modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False
            in_place.add(path)
    own = root.__dict__.get("forward")
    if isinstance(own, EditedForward):
        nodes = {node.name: node for node in own.graph.nodes}
        return Traced(
            root, own.graph, {layer: nodes[name] for layer, name in own.names.items()}, own.calls, own.returned
        )
    recorded = record(root, type(model).__name__)
    graph = recorded.graph
    remove_in_place(root, graph, in_place)
    layers, calls = _name(recorded)
    keep_dropout(root, graph)
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    return Traced(root, graph, layers, calls, recorded.returned if isinstance(result, dict) else None)


def returns_several(traced: Traced, node: fx.Node) -> bool:
    """Tell whether the node is known to return several tensors, not one."""
    if isinstance(traced.module_of(node), nn.MultiheadAttention | nn.RNNBase):
        return True
    return node.op in ("call_function", "call_method") and operation_name(node) in _SEVERAL


def scalar_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that hold sizes and other non-tensors: cheap, and recomputed wherever they are needed."""
    scalars: set[fx.Node] = set()
    for node in graph.nodes:
        name = operation_name(node)
        is_fact = node.target is getattr and (name in _FACTS or node.args[0] in scalars)
        if (node.op == "call_method" and name in _SIZES) or is_fact:
            scalars.add(node)
        elif node.op == "call_function" and node.all_input_nodes and scalars.issuperset(node.all_input_nodes):
            module = getattr(node.target, "__module__", None)
            if module in ("_operator", "builtins", "math") or name == "assert":
                scalars.add(node)
    return scalars


def _name(recorded: Recorded) -> tuple[dict[str, fx.Node], dict[str, tuple[str, ...]]]:
    """Give every selectable node its names; see the module's docstring for the rule."""
    graph = recorded.graph
    scalars = scalar_nodes(graph)
    of_module: defaultdict[str, list[fx.Node]] = defaultdict(list)
    for path, node in recorded.outputs:
        if node.op not in ("placeholder", "get_attr") and node not in scalars:
            of_module[path].append(node)
    named: list[tuple[str, fx.Node]] = []
    calls: dict[str, tuple[str, ...]] = {}
    taken = set(of_module)

    def free(base: str, number: int) -> str:
        while (name := f"{base}_{number}" if number or base in taken else base) in taken:
            number += 1
        taken.add(name)
        return name

    for path, nodes in of_module.items():
        if len(nodes) == 1:
            named.append((path, nodes[0]))
        else:
            calls[path] = tuple(free(path, number) for number in range(len(nodes)))
            named.extend(zip(calls[path], nodes))
    counts: defaultdict[str, int] = defaultdict(int)
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method") or node in scalars:
            continue
        scope = recorded.scopes[node]
        base = f"{scope}.{operation_name(node)}" if scope else operation_name(node)
        named.append((free(base, counts[base]), node))
        counts[base] += 1
    order = {node: position for position, node in enumerate(graph.nodes)}
    return dict(sorted(named, key=lambda pair: order[pair[1]])), calls
