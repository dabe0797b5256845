"""Rewrite a traced graph so that every node keeps its value and dropout keeps its switch."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from hansfree.errors import SplitError

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
    """Tell whether the module is random in training: dropout, stochastic depth, attention with dropout."""
    names = ("p", "drop_prob", "dropout")
    rate = next((getattr(module, name) for name in names if isinstance(getattr(module, name, None), float | int)), None)
    if _is_dropout(module):
        return rate is None or rate > 0
    return isinstance(module, nn.MultiheadAttention | nn.RNNBase) and bool(rate)


def _is_dropout(module: nn.Module) -> bool:
    """Tell by class or by name: stochastic depth is called DropPath in half of the libraries."""
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
        """Tell whether anything after ``write`` reads ``source``, or a view of it that was taken before."""
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
    """Turn an in-place node into its plain form; tell whether it was one."""
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
    """Tell whether the node's output is its input itself, or a view of it."""
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
