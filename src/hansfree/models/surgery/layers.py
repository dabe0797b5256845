"""The layers of a model: list them, put a module behind one."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from hansfree.errors import SplitError
from hansfree.models.surgery.graph import Traced, ambiguous_sentence, operation_name, trace
from hansfree.models.surgery.hooked import check_module, module_facts
from hansfree.models.surgery.partition import Flow, GraphCut
from hansfree.models.surgery.tracing import PROJECTION, AppliedAfter, AxisOrder, EditedForward, inverse


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
    """
    try:
        traced = trace(model, share=True)
    except SplitError as error:
        if example is None:
            raise SplitError(f"{error} Give `example`, a batch of images, to list its modules.") from error
        return [Layer(*facts) for facts in module_facts(model, example)]
    flow, shapes = Flow(traced), _shapes(traced, example)
    layers = [_describe(flow, name, shapes) for name in traced.layers]
    for path, calls in traced.calls.items():
        kind = type(traced.root.get_submodule(path)).__name__
        position = next(i for i, layer in enumerate(layers) if layer.name == calls[0])
        reason = ambiguous_sentence(type(traced.root).__name__, path, calls)
        layers.insert(position, Layer(path, kind, len(calls), usable=False, parameters_after=0, reason=reason))
    return layers


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
    with graph.inserting_before(node.next):
        if order is None:
            first = call = graph.call_module(PROJECTION, (node,))
        else:
            first = graph.call_method("permute", (node, order))
            call = graph.call_method("permute", (graph.call_module(PROJECTION, (first,)), inverse(order)))
            call = graph.call_method("contiguous", (call,))
    node.replace_all_uses_with(call, delete_user_cb=lambda user: user is not first)
    names = {name: (call if known is node else known).name for name, known in traced.layers.items()}
    names[PROJECTION] = call.name
    own = dict(model.named_modules())
    for path, module in traced.root.named_children():
        if path not in own:
            model.add_module(path, copy.deepcopy(module))  # functional dropout that tracing turned into a module
    model.__dict__["forward"] = EditedForward(model, traced.graph, names, traced.calls, traced.returned)


class _ShapeRecorder(fx.Interpreter):
    """Run a graph and keep the shape of every tensor in it."""

    def __init__(self, traced: Traced) -> None:
        super().__init__(traced.root, graph=traced.graph)
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n] = tuple(result.shape[1:])
        return result


def _shapes(traced: Traced, example: Tensor | None) -> dict[fx.Node, tuple[int, ...]] | None:
    if example is None:
        return None
    recorder = _ShapeRecorder(traced)
    with torch.no_grad():
        recorder.run(example.clone())
    return recorder.shapes


def _describe(flow: Flow, name: str, shapes: dict[fx.Node, tuple[int, ...]] | None) -> Layer:
    traced = flow.traced
    node = traced.layers[name]
    path = next((path for path, calls in traced.calls.items() if name in calls), name)
    kind = type(flow.modules[path]).__name__ if path in flow.modules else operation_name(node)
    shape = None if shapes is None else shapes.get(node)
    reason = ""
    try:
        count = GraphCut(flow, name).parameters_after()
    except SplitError as error:
        count, reason = 0, str(error)
    is_tensor = shapes is None or shape is not None
    return Layer(name, kind, 1, count > 0 and is_tensor, count if is_tensor else 0, shape, reason)
