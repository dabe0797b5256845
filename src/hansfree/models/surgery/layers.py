"""The layers of a model: list them, put a module behind one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn

from hansfree.errors import SplitError
from hansfree.models.surgery.graph import Traced, ambiguous_sentence, eval_copy, operation_name, trace
from hansfree.models.surgery.hooked import AutogradFlow, check_module, run_recorded
from hansfree.models.surgery.layout import GraphRecorder
from hansfree.models.surgery.partition import Flow, GraphCut, is_norm_parameter
from hansfree.models.surgery.tracing import PROJECTION, AppliedAfter, AxisOrder, EditedForward


@dataclass(frozen=True)
class Layer:
    """One place at which a model can, or cannot, be cut."""

    name: str
    kind: str  # the module's class, or the operation
    calls: int
    usable: bool
    parameters_after: int  # how many numbers the parameters after the layer hold; 0 where it is not usable
    shape: tuple[int, ...] | None = None  # of the output for one image, when an example was given
    reason: str = field(default="", compare=False)  # why it is not usable, where that is known


def list_layers(model: nn.Module, example: Tensor | None = None) -> list[Layer]:
    """List the layers in the order in which they are computed.

    Args:
        model: Any module from one batch of images to logits; it is not touched.
        example: A batch of images, for the shapes; a model that cannot be traced needs it.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 2))
        >>> [layer.name for layer in list_layers(model)]
        ['0', '1', '2', '3']
    """
    try:
        traced = trace(model, share=True)
    except SplitError as error:
        if example is None:
            raise SplitError(f"{error} Give `example`, a batch of images, to list its modules.") from error
        return list(_modules_as_layers(model, example))
    flow = Flow(traced)
    shapes = None if example is None else GraphRecorder(traced.root, traced.graph, example).shapes
    layers = [_describe(flow, name, shapes) for name in traced.layers]
    for path, calls in traced.calls.items():
        kind = type(traced.root.get_submodule(path)).__name__
        position = next(i for i, layer in enumerate(layers) if layer.name == calls[0])
        reason = ambiguous_sentence(type(traced.root).__name__, path, calls)
        layers.insert(position, Layer(path, kind, len(calls), usable=False, parameters_after=0, reason=reason))
    return layers


def _modules_as_layers(model: nn.Module, example: Tensor) -> Iterator[Layer]:
    """Yield the modules of a model that cannot be traced, in the order of their calls."""
    own = eval_copy(model)
    order, outputs = run_recorded(own, example)
    flow = AutogradFlow(own, example)
    for path in dict.fromkeys(path for path in order if path):
        output, names = outputs[path], dict[str, int]()
        shape = tuple(output.shape[1:]) if isinstance(output, Tensor) else None
        if order.count(path) == 1 and shape is not None:
            with suppress(SplitError):
                names = flow.parameters_after(path)
        count = sum(own.get_parameter(name).numel() for name in names)
        is_usable = any(not is_norm_parameter(own, name) for name in names)
        yield Layer(path, type(own.get_submodule(path)).__name__, order.count(path), is_usable, count, shape)


def insert_after(model: nn.Module, layer: str, module: nn.Module, *, order: AxisOrder | None = None) -> nn.Module:
    """Return a copy of ``model`` in which ``module`` edits the layer's output.

    The copy has the same class and the same ``state_dict`` keys plus those of ``module`` under ``hansfree_projection``.
    From then on the layer's name stands for the edited output.

    Args:
        order: Of the axes that ``module`` expects (``Cut.order``, ``layer_order``); they are turned for it, and back.
    """
    kind = type(model).__name__
    if hasattr(model, PROJECTION):
        raise SplitError(f"{kind} already has a {PROJECTION!r}. Take it out first.")
    runs_children = type(model).forward is nn.Sequential.forward  # all of them: an added module would come last
    try:
        traced = trace(model, share=True)
    except SplitError as error:
        if runs_children:
            raise SplitError(f"{error} Nothing can be inserted into a Sequential then: wrap it in a module.") from error
        check_module(model, layer)
        is_hooked = True
    else:
        traced.find(layer)
        # An edited forward calls no containers, so that a hook on one would never run.
        is_edited = isinstance(model.__dict__.get("forward"), EditedForward)
        is_hooked = layer in dict(model.named_modules()) and not is_edited and not runs_children
    edited = copy.deepcopy(model)
    inserted = copy.deepcopy(module).train(model.training)
    if is_hooked:
        edited.get_submodule(layer).register_forward_hook(AppliedAfter(inserted, order))
    else:
        _edit_forward(edited, traced, layer, order)
    edited.add_module(PROJECTION, inserted)
    return edited


def _edit_forward(model: nn.Module, traced: Traced, layer: str, order: AxisOrder | None) -> None:
    """Let this instance run its own graph with a call of the inserted module behind the layer."""
    node, graph = traced.find(layer), traced.graph
    readers = set(node.users)
    with graph.inserting_before(node.next):
        inserted = AppliedAfter(lambda given: fx.Proxy(graph.call_module(PROJECTION, (given.node,))), order)
        call = inserted.edit(fx.Proxy(node)).node
    node.replace_all_uses_with(call, delete_user_cb=readers.__contains__)
    names = {name: (call if known is node else known).name for name, known in traced.layers.items()}
    names[PROJECTION] = call.name
    added = {path: module for path, module in traced.root.named_children() if not hasattr(model, path)}
    for path, module in added.items():
        model.add_module(path, copy.deepcopy(module))  # functional dropout that tracing turned into a module
    read = {str(one.target) for one in graph.nodes if one.op == "get_attr"}
    constants = [name for name in sorted(read) if "." not in name and not hasattr(model, name)]
    for name in constants:  # a tensor that the model's own code makes when it runs
        model.register_buffer(name, getattr(traced.root, name), persistent=False)
    own = EditedForward(model, graph, names, traced.calls, traced.returned, added=(*added, *constants))
    model.__dict__["forward"] = own


def _describe(flow: Flow, name: str, shapes: dict[fx.Node, torch.Size] | None) -> Layer:
    traced = flow.traced
    node = traced.layers[name]
    path = next((path for path, calls in traced.calls.items() if name in calls), name)
    kind = type(flow.modules[path]).__name__ if path in flow.modules else operation_name(node)
    shape = None if shapes is None or node not in shapes else tuple(shapes[node][1:])
    reason = ""
    try:
        count = GraphCut(flow, name).parameters_after()
    except SplitError as error:
        count, reason = 0, str(error)
    is_tensor = shapes is None or shape is not None
    return Layer(name, kind, 1, count > 0 and is_tensor, count if is_tensor else 0, shape, reason)
