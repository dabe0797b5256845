"""A traced copy of a model: names of nodes, no in-place operations, a check for batch statistics."""

from __future__ import annotations

import copy
import inspect
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, OptionError, SplitError, nearest
from hansfree.models.surgery.tracing import EditedForward, record
from hansfree.models.weights import check_dense

# Outputs that may share memory with their input: writing into one of them also writes into the other.
# fmt: off
_VIEWS = frozenset([
    "view", "view_as", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "t", "expand",
    "expand_as", "chunk", "split", "unbind", "narrow", "select", "getitem", "contiguous", "detach", "movedim",
    "T", "mT", "H", "mH", "data", "real", "imag",
])

# fmt: on
_FUNCTIONAL_DROPOUT: dict[Any, Callable[[float], nn.Module]] = {
    functional.dropout: nn.Dropout,
    functional.dropout1d: nn.Dropout1d,
    functional.dropout2d: nn.Dropout2d,
    functional.dropout3d: nn.Dropout3d,
    functional.alpha_dropout: nn.AlphaDropout,
    functional.feature_alpha_dropout: nn.FeatureAlphaDropout,
}


def is_dropout_like(module: nn.Module) -> bool:
    """Return whether the module is random in training: dropout, stochastic depth, attention with dropout."""
    values = (getattr(module, name, None) for name in ("p", "drop_prob", "dropout"))
    rate = next((value for value in values if isinstance(value, float | int)), None)
    if _is_dropout(module):
        return rate is None or rate > 0
    return isinstance(module, nn.MultiheadAttention | nn.RNNBase) and bool(rate)


def _is_dropout(module: nn.Module) -> bool:
    """Match by class or by name: stochastic depth is called DropPath in half of the libraries."""
    named_so = any(word in type(module).__name__ for word in ("Drop", "StochasticDepth"))
    return isinstance(module, _DropoutNd) or (named_so and next(module.parameters(), None) is None)


def operation_name(node: fx.Node) -> str:
    """Return the plain name of what the node calls: ``add``, ``flatten``, ``view``; of ``x.mT`` it is ``mT``."""
    if node.target is getattr:
        return str(node.args[1])
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return target.rpartition(".")[2].strip("_")


def remove_in_place(root: nn.Module, graph: fx.Graph, in_place: set[str]) -> None:
    """Make every operation write into a tensor of its own, and let later readers read that one."""
    order = {node: position for position, node in enumerate(graph.nodes)}

    def is_read_later(source: fx.Node, write: fx.Node) -> bool:
        """Return whether anything after ``write`` reads ``source``, or a view of it that was taken before."""
        return any(
            order[user] > order[write] or (_shares_memory(root, user) and is_read_later(user, write))
            for user in source.users
            if user is not write
        )

    for node in list(graph.nodes):
        if not _writes(node, in_place):
            continue
        for source, is_whole in _memory(root, node.all_input_nodes[0]):
            later = [user for user in source.users if order[user] > order[node]] if is_whole else []
            for user in later:
                user.replace_input_with(source, node)
            if is_read_later(source, node):
                raise SplitError(f"{node.name!r} writes in place into a tensor whose views are read again later.")


def _memory(root: nn.Module, node: fx.Node) -> Iterator[tuple[fx.Node, bool]]:
    """Yield the nodes whose memory ``node`` shares, itself first, and whether they are all of the same tensor."""
    is_whole = True
    yield node, is_whole
    while shared := _shares_memory(root, node):
        is_whole = is_whole and shared == "all"
        node = node.all_input_nodes[0]
        yield node, is_whole


def _writes(node: fx.Node, in_place: set[str]) -> bool:
    """Turn an in-place node into its plain form; return whether it was one."""
    if node.op == "call_module":
        return node.target in in_place
    if node.op == "call_function" and node.target is operator.setitem:
        raise SplitError("The model assigns to parts of a tensor, which tracing cannot follow.")
    if node.op == "call_function" and node.kwargs.get("inplace") is True:
        node.kwargs = {**node.kwargs, "inplace": False}
        return True
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if not name.endswith("_") or name.endswith("__"):
        return False
    owner: Any = Tensor if node.op == "call_method" else inspect.getmodule(node.target) or torch
    if not hasattr(owner, name[:-1]):
        raise SplitError(f"The model uses the in-place operation {name!r}, which tracing cannot follow.")
    node.target = name[:-1] if node.op == "call_method" else getattr(owner, name[:-1])
    return True


def _shares_memory(root: nn.Module, node: fx.Node) -> Literal["all", "view"] | None:
    """Return whether the node's output is its input itself, or a view of it."""
    if node.op == "call_module":
        module = root.get_submodule(str(node.target))
        if isinstance(module, nn.Identity) or _is_dropout(module):
            return "all"
        return "view" if isinstance(module, nn.Flatten | nn.Unflatten) else None
    is_operation = node.op in ("call_function", "call_method") and bool(node.all_input_nodes)
    return "view" if is_operation and operation_name(node) in _VIEWS else None


def keep_dropout(root: nn.Module, graph: fx.Graph) -> None:
    """Turn ``F.dropout(x, training=self.training)`` into a module: in a traced graph the flag would stay off."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _FUNCTIONAL_DROPOUT and not node.kwargs.get("training", True):
            path = f"hansfree_{node.name}"
            root.add_module(path, _FUNCTIONAL_DROPOUT[node.target](node.kwargs["p"]).eval())
            node.op, node.target, node.args, node.kwargs = "call_module", path, (node.all_input_nodes[0],), {}


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
    return (
        f"{kind} has no layer {layer!r}.{nearest(layer, known)} All: `hansfree layers SOURCE --all`, or in Python "
        "`hansfree.list_layers(model)`."
    )


def eval_copy(model: nn.Module, *, share: bool = False) -> nn.Module:
    """Return a copy in eval mode on the CPU; with ``share`` it holds the very same tensors and must only be read."""
    check_dense(model)
    tensors = [*model.parameters(), *model.buffers()] if share else []
    own = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}).eval()
    return own if share else own.cpu()


@contextmanager
def default_dtype_kept(model: nn.Module) -> Iterator[None]:
    """Refuse a model that changes PyTorch's default dtype when it runs in the block; the default is put back."""
    before = torch.get_default_dtype()
    try:
        yield
    finally:
        after = torch.get_default_dtype()
        torch.set_default_dtype(before)
    if after != before:
        raise OptionError(
            f"{type(model).__name__} sets PyTorch's default dtype to {after} when it runs, which changes all that "
            "follows. Remove torch.set_default_dtype from its forward."
        )


def not_logits(kind: str, result: object) -> SplitError:
    """Return what to raise where a model returns anything but one tensor."""
    return SplitError(f"{kind} returns a {type(result).__name__}, not one tensor of logits. Wrap it in a module.")


def check_gradient(kind: str, logits: Tensor) -> None:
    """Refuse logits through which nothing can be trained."""
    if not logits.requires_grad:
        raise SplitError(
            f"The logits of {kind} are cut off from its parameters, so that nothing can be trained. Remove detach() "
            "and torch.no_grad() from its forward."
        )


def device_of(model: nn.Module, example: Tensor) -> torch.device:
    """Return the device of the model's parameters; of the example where it has none."""
    return next((tensor.device for tensor in model.parameters()), example.device)


def trace(model: nn.Module, *, share: bool = False) -> Traced:
    """Trace a copy of ``model`` in eval mode, without in-place operations: every node keeps its value.

    Raises:
        SplitError: the model cannot be traced exactly (control flow that depends on data, writes into views).
    """
    root = eval_copy(model, share=share)
    if root._forward_hooks or root._forward_pre_hooks:
        raise SplitError(f"{type(root).__name__} itself has forward hooks, which tracing would drop.")
    in_place = {path for path, module in root.named_modules() if getattr(module, "inplace", False) is True}
    for path in in_place:
        root.get_submodule(path).inplace = False  # type: ignore[assignment]  # a plain flag
    own = root.__dict__.get("forward")
    if isinstance(own, EditedForward):
        nodes = {node.name: node for node in own.graph.nodes}
        layers = {layer: nodes[name] for layer, name in own.names.items()}
        return Traced(root, own.graph, layers, own.calls, own.returned)
    with default_dtype_kept(model):
        recorded = record(root, type(model).__name__)
    graph = recorded.graph
    remove_in_place(root, graph, in_place)
    layers, calls = _name(graph, recorded.scopes, recorded.outputs)
    keep_dropout(root, graph)
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    return Traced(root, graph, layers, calls, recorded.returned if isinstance(result, dict) else None)


def returns_several(traced: Traced, node: fx.Node) -> bool:
    """Return whether the node is known to return several tensors, not one."""
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


def _name(
    graph: fx.Graph, scopes: dict[fx.Node, str], outputs: list[tuple[str, fx.Node]]
) -> tuple[dict[str, fx.Node], dict[str, tuple[str, ...]]]:
    """Name every node that can be a layer: modules by path, their calls by number, operations by enclosing module."""
    scalars = scalar_nodes(graph)
    of_module: defaultdict[str, list[fx.Node]] = defaultdict(list)
    for path, node in outputs:
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
        scope = scopes[node]
        base = f"{scope}.{operation_name(node)}" if scope else operation_name(node)
        named.append((free(base, counts[base]), node))
        counts[base] += 1
    order = {node: position for position, node in enumerate(graph.nodes)}
    return dict(sorted(named, key=lambda pair: order[pair[1]])), calls


_BATCH_NORMS = {functional.batch_norm, torch.batch_norm, torch.native_batch_norm}


def check_batch_norms(traced: Traced) -> None:
    """Refuse a graph with a norm that uses the statistics of the batch in eval mode."""
    for node in traced.graph.nodes:
        module = traced.module_of(node)
        has_none = isinstance(module, _BatchNorm) and module.running_mean is None and module.running_var is None
        if has_none or (node.target in _BATCH_NORMS and _is_training(node.args, node.kwargs)):
            name = node.name if module is None else str(node.target)
            raise SplitError(_sentence(f"{name!r} of {type(traced.root).__name__}"))


class NoBatchStatistics(TorchFunctionMode):
    """Refuse such a norm wherever it runs in the block: for models, or parts of them, that are not traced."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BATCH_NORMS and _is_training(args, kwargs or {}):
            raise SplitError(_sentence("The model"))
        return func(*args, **(kwargs or {}))


def _is_training(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    # All of them have the flag at the same place.
    return bool(kwargs.get("training", args[5] if len(args) > 5 else False))


def _sentence(who: str) -> str:
    return (
        f"{who} normalises by the statistics of the batch in eval mode too, so that an image's activations depend on "
        "the images beside it. Use a batch norm with running statistics (track_running_stats=True)."
    )
