"""The model as a graph: which operation feeds which, and the name by which a user selects one.

Names are module paths (``features.28``, ``layer4.1``), and where no module stands the enclosing module's path plus
the operation (``layer4.1.add``, the second one ``layer4.1.add_1``), as in torchvision's feature extraction. A module
that is called more than once has one name per call, counted from zero (``layer4.1.relu_0``, ``layer4.1.relu_1``); its
bare path is ambiguous and refused.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError, nearest
from hansfree.splitting.inplace import keep_dropout, operation_name, remove_in_place
from hansfree.splitting.inserted import AppliedAfter, EditedForward, remove_hooks
from hansfree.splitting.questions import ShapeAnswers, image_shapes

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


class _Proxy(fx.Proxy):
    """What stands for a value in a trace; of a shape, it also knows the length."""

    tracer: _Tracer

    def __getattr__(self, k: str) -> fx.proxy.Attribute:
        return _Attribute(self, k)  # `x.shape`; fx makes its node when it is used

    def __len__(self) -> int:
        return self.tracer.length(self)


class _Attribute(fx.proxy.Attribute):
    __len__ = _Proxy.__len__


class _Tracer(fx.Tracer):
    """Record every node's enclosing module; modules without children stay whole and keep their training flag."""

    def __init__(self, edits: dict[str, AppliedAfter], answers: ShapeAnswers) -> None:
        super().__init__()
        self.edits = edits  # modules inserted behind others by a hook; in the graph they become nodes
        self.answers = answers  # to what the model asks about shapes
        self.enclosing = ""
        self.scopes: dict[fx.Node, str] = {}
        self.outputs: list[tuple[str, fx.Node]] = []  # of every module call, in the order in which they return
        self.returned: type[dict[str, Any]] | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        childless = next(m.children(), None) is None
        return childless or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.answers.is_answering:
            return forward(*args, **kwargs)
        outer, path = self.enclosing, self.path_of_module(m)
        self.enclosing = path
        try:
            output = super().call_module(m, forward, args, kwargs)
        finally:
            self.enclosing = outer
        if path in self.edits:
            output = self.edits[path].edit(output)
        if isinstance(output, fx.Proxy):
            self.outputs.append((path, output.node))
        return output

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, dict) and type(a) is not dict:
            self.returned = type(a)  # the last one is what the model returns
        return super().create_arg(a)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self.answers.is_answering:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def to_bool(self, obj: fx.Proxy) -> bool:
        try:
            return self.answers.truth(self.root, obj.node)
        except Exception as error:  # the model's own code, on shapes without numbers
            raise fx.proxy.TraceError("a branch depends on the images' own numbers") from error

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        return (operator.getitem(obj, position) for position in range(self.length(obj)))

    def length(self, obj: fx.Proxy) -> int:
        try:
            return self.answers.length(self.root, obj.node)
        except Exception as error:
            raise fx.proxy.TraceError("a loop or a length depends on the images") from error

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        self.scopes[node] = self.enclosing
        return node


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
    tracer, graph = _traced(root, type(model).__name__)
    remove_in_place(root, graph, in_place)
    layers, calls = _name(tracer, graph)
    keep_dropout(root, graph)
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    return Traced(root, graph, layers, calls, tracer.returned if isinstance(result, dict) else None)


def _traced(root: nn.Module, kind: str) -> tuple[_Tracer, fx.Graph]:
    """Trace with the first shape of images that the model takes; another graph for other images is an error."""
    edits, shapes = remove_hooks(root), image_shapes(root)
    root = _with_class_forward(root)
    found: tuple[_Tracer, fx.Graph] | None = None
    reason: Exception | None = None
    while shapes:
        tracer = _Tracer(edits, ShapeAnswers(shapes))
        try:
            graph = tracer.trace(root, concrete_args=_defaults(root))
        except Exception as error:  # the model's own code runs on proxies: anything may come out of it
            reason = reason or error
        else:
            if found is not None:
                raise SplitError(
                    f"{kind} cannot be traced: it does other things with images of another size or number."
                )
            found = tracer, graph
        shapes = tracer.answers.differing  # the others go the same way
    if found is None:
        raise SplitError(f"{kind} cannot be traced: {str(reason).rstrip('.')}.") from reason
    return found


def _with_class_forward(root: nn.Module) -> nn.Module:
    """Return ``root`` such that tracing sees a ``forward`` set on the instance; fx looks at the class only.

    So it does with one whose images have a default or that takes any keyword (Hugging Face's): only images are given.
    """
    own, cls = root.__dict__.pop("forward", None), type(root)
    _, *parameters = inspect.signature(cls.forward).parameters.values()
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters) or (parameters and parameters[0].default is None)
    if own is not None:
        root.__class__ = type(cls.__name__, (cls,), {"forward": lambda self, x: own(x)})
    elif is_open:
        root.__class__ = type(cls.__name__, (cls,), {"forward": lambda self, x: cls.forward(self, x)})
    return root


def _defaults(root: nn.Module) -> dict[str, Any]:
    """Fix optional arguments at their defaults; as proxies they would take the branch ``is not None``."""
    parameters = inspect.signature(type(root).forward).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


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


def _name(tracer: _Tracer, graph: fx.Graph) -> tuple[dict[str, fx.Node], dict[str, tuple[str, ...]]]:
    """Give every selectable node its names; see the module's docstring for the rule."""
    scalars = scalar_nodes(graph)
    of_module: defaultdict[str, list[fx.Node]] = defaultdict(list)
    for path, node in tracer.outputs:
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
        scope = tracer.scopes[node]
        base = f"{scope}.{operation_name(node)}" if scope else operation_name(node)
        named.append((free(base, counts[base]), node))
        counts[base] += 1
    order = {node: position for position, node in enumerate(graph.nodes)}
    return dict(sorted(named, key=lambda pair: order[pair[1]])), calls
