"""Trace a model; modules that stand after a layer; guards on shapes."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.conv import _ConvNd

from hansfree.errors import SplitError

AxisOrder = tuple[int, ...]


def inverse(order: AxisOrder) -> AxisOrder:
    """Return the order that undoes an order."""
    return tuple(order.index(axis) for axis in range(len(order)))


PROJECTION = "hansfree_projection"


class AppliedAfter:
    """A forward hook that sends a module's output, its axes in ``order``, through another module.

    An object and not a closure: a copy of the model then holds a hook with the copy's own inserted module.
    """

    def __init__(self, module: Callable[[Any], Any], order: AxisOrder | None = None) -> None:
        self.module, self.order = module, order

    def __call__(self, _module: nn.Module, _args: Any, output: Tensor) -> Any:
        """Return the edited output."""
        return self.edit(output)

    def edit(self, output: Any) -> Any:
        """Return the edited output, of a tensor or of what stands for one in a trace."""
        if self.order is None:
            return self.module(output)
        return self.module(output.permute(self.order)).permute(inverse(self.order)).contiguous()


@dataclass(eq=False)
class EditedForward:
    """The ``forward`` of a model instance that runs a graph over the model's own modules and parameters."""

    model: nn.Module
    graph: fx.Graph
    names: dict[str, str]  # layer -> name of the node: nodes themselves do not survive a copy of the graph
    calls: dict[str, tuple[str, ...]]
    returned: type[dict[str, Any]] | None = None  # the class of the output object, where the model returns one
    added: tuple[str, ...] = ()  # what the model itself does not have: functional dropout and constants

    def __post_init__(self) -> None:
        self.before = self.model.__dict__.get("forward")  # what the instance ran until now, if not its class's

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the graph; the images may be given by name, as the processors of Hugging Face do."""
        _, images, *_ = (*inspect.signature(type(self.model).forward).parameters, "images")
        if unknown := named.keys() - {images}:
            raise TypeError(f"A corrected {type(self.model).__name__} takes images only, not {', '.join(unknown)}.")
        result = fx.Interpreter(self.model, graph=self.graph).run(*inputs, *named.values())
        return result if self.returned is None else self.returned(**result)


def remove_inserted(model: nn.Module) -> tuple[nn.Module, nn.Module | None]:
    """Return a copy of the model as it was before the insertion, and the inserted module (None where there is none)."""
    plain = copy.deepcopy(model)
    module = getattr(plain, PROJECTION, None)
    if module is None:
        return plain, None
    forward = plain.__dict__.get("forward")
    if isinstance(forward, EditedForward):
        del plain.__dict__["forward"]
        for name in forward.added:
            delattr(plain, name)
        if forward.before is not None:
            plain.__dict__["forward"] = forward.before
    remove_hooks(plain)
    delattr(plain, PROJECTION)
    return plain, module


def remove_hooks(model: nn.Module) -> dict[str, AppliedAfter]:
    """Remove the hooks of inserted modules; return them by the path of the module that they edited."""
    found = {}
    for path, module in model.named_modules():
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, AppliedAfter):
                del module._forward_hooks[key]
                found[path] = hook
    return found


Shape = tuple[int, ...]
Answer = TypeVar("Answer", bool, int)
Node = TypeVar("Node")
_SIZES = (224, 32, 64, 150)  # in pixels: some that are padded for patches and windows, and some that are not
_NAMES = ("image_size", "img_size")  # under which models keep the one size that they take


def image_shapes(root: nn.Module) -> list[Shape]:
    """Return the shapes of batches that the model may be made for, the likeliest first."""
    channels = next((int(module.in_channels) for module in root.modules() if isinstance(module, _ConvNd)), 3)
    known = [side for module in root.modules() for name in _NAMES for side in _sides(getattr(module, name, None))]
    sizes = dict.fromkeys([*known, *((size, size) for size in _SIZES)])
    first, *others = [(2, channels, *size) for size in sizes]
    return [first, (1, *first[1:]), *others]  # the number of images must not matter either


def _sides(value: object) -> list[tuple[int, int]]:
    pair = (value, value) if isinstance(value, int) else value
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(side, int) for side in pair):
        return [(pair[0], pair[1])]
    return []


class ShapeGuards:
    """What a batch of the first shape answers; and which of the other shapes would have answered otherwise."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.first, *self.agreeing = shapes
        self.differing: list[Shape] = []
        self.is_answering = False  # then modules run on what stands for tensors, and are not traced
        self._runs: dict[Shape, fx.Interpreter] = {}

    @cached_property
    def _mode(self) -> FakeTensorMode:
        """Shapes without numbers: nothing is computed. It loads sympy, which takes a second, and few models ask."""
        return FakeTensorMode(allow_non_fake_inputs=True)

    def answer(self, root: nn.Module, node: fx.Node, read: Callable[[Any], Answer]) -> Answer:
        """Return what ``read`` says of the node's value; any error on the way means that there is no answer."""
        with self._answering():
            answer = read(self._value(root, node, self.first))
            for shape in list(self.agreeing):
                try:
                    agrees = read(self._value(root, node, shape)) == answer
                except Exception:  # the model's own code, on images that it may not be made for
                    agrees = False
                if not agrees:
                    self.agreeing.remove(shape)
                    self.differing.append(shape)
        return answer

    def _value(self, root: nn.Module, node: fx.Node, shape: Shape) -> Any:
        run = self._runs.get(shape)
        if run is None:
            run = self._runs[shape] = fx.Interpreter(root, garbage_collect_values=False, graph=node.graph)
        computed_from = reach([node], lambda one: one.all_input_nodes)
        for needed in node.graph.nodes:
            if needed in computed_from and needed not in run.env:
                is_images = needed.op == "placeholder"
                run.env[needed] = torch.empty(shape) if is_images else run.run_node(needed)
        return run.env[node]

    @contextmanager
    def _answering(self) -> Iterator[None]:
        self.is_answering = True
        try:
            with torch.no_grad(), self._mode:
                yield
        finally:
            self.is_answering = False


def _count(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        raise TypeError("a loop over a tensor")  # as many rounds as there are images, perhaps
    return len(value)


def reach(start: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return the given nodes of a graph and every node that is reached from them."""
    found, open_nodes = set[Node](), list(start)
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes.extend(following(node))
    return found


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

    def __init__(self, edits: dict[str, AppliedAfter], answers: ShapeGuards) -> None:
        super().__init__()
        self.edits = edits  # modules inserted behind others by a hook; in the graph they become nodes
        self.answers = answers  # to what the model asks about shapes
        self.enclosing = ""
        self.scopes: dict[fx.Node, str] = {}  # the path of every node's enclosing module
        self.outputs: list[tuple[str, fx.Node]] = []  # of every module call, in the order in which they return
        self.returned: type[dict[str, Any]] | None = None  # the class of the last object made of several tensors

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
            self.returned = type(a)
        return super().create_arg(a)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self.answers.is_answering:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def to_bool(self, obj: fx.Proxy) -> bool:
        return self._ask(obj, bool, "a branch depends on the images' own numbers")

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        return (operator.getitem(obj, position) for position in range(self.length(obj)))

    def length(self, obj: fx.Proxy) -> int:
        return self._ask(obj, _count, "a loop or a length depends on the images")

    def _ask(self, obj: fx.Proxy, read: Callable[[Any], Answer], otherwise: str) -> Answer:
        try:
            return self.answers.answer(self.root, obj.node, read)
        except Exception as error:  # the model's own code, on shapes without numbers
            raise fx.proxy.TraceError(otherwise) from error

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        self.scopes[node] = self.enclosing
        return node


def record(root: nn.Module, kind: str) -> _Tracer:
    """Trace with the first shape of images that the model takes; another graph for other images is an error."""
    edits, shapes = remove_hooks(root), image_shapes(root)
    root = _with_class_forward(root)
    parameters = inspect.signature(type(root).forward).parameters.values()
    # As proxies, optional arguments would take the branch `is not None`.
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    found: _Tracer | None = None
    reason: Exception | None = None
    while shapes:
        tracer = _Tracer(edits, ShapeGuards(shapes))
        try:
            tracer.trace(root, concrete_args=defaults)
        except Exception as error:  # the model's own code runs on proxies: anything may come out of it
            reason = reason or error
        else:
            if found is not None:
                raise SplitError(
                    f"{kind} cannot be traced: it does other things with images of another size or number."
                )
            found = tracer
        shapes = tracer.answers.differing  # the others go the same way
    if found is None:
        raise SplitError(f"{kind} cannot be traced: {str(reason).rstrip('.')}.") from reason
    return found


def _with_class_forward(root: nn.Module) -> nn.Module:
    """Return ``root`` such that fx, which looks at the class only, sees a ``forward`` that is set on the instance.

    The same where the images have a default or any keyword is taken (Hugging Face): only images are given.
    """
    own, cls = root.__dict__.pop("forward", None), type(root)
    _, *parameters = inspect.signature(cls.forward).parameters.values()
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters) or (parameters and parameters[0].default is None)
    if own is not None or is_open:
        run = own or partial(cls.forward, root)
        root.__class__ = type(cls.__name__, (cls,), {"forward": lambda _, x: run(x)})
    return root
