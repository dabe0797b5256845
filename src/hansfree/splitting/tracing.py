"""Trace a model with torch.fx: which operation ran in which module, and the shapes of images that it holds for."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from hansfree.errors import SplitError
from hansfree.splitting.inserted import AppliedAfter, remove_hooks
from hansfree.splitting.questions import ShapeAnswers, image_shapes


@dataclass(frozen=True, eq=False)
class Recorded:
    """A model's graph, and what ran where."""

    graph: fx.Graph
    scopes: dict[fx.Node, str]  # the path of every node's enclosing module
    outputs: list[tuple[str, fx.Node]]  # of every module call, in the order in which they return
    returned: type[dict[str, Any]] | None  # the class of the last object that the model made of several tensors


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
        self.outputs: list[tuple[str, fx.Node]] = []
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


def record(root: nn.Module, kind: str) -> Recorded:
    """Trace with the first shape of images that the model takes; another graph for other images is an error."""
    edits, shapes = remove_hooks(root), image_shapes(root)
    root = _with_class_forward(root)
    found: Recorded | None = None
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
            found = Recorded(graph, tracer.scopes, tracer.outputs, tracer.returned)
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
