"""A model cut at a layer: trunk, phi and head."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from hansfree.errors import SplitError, check_choice, nearest
from hansfree.models.surgery.graph import (
    NoBatchStatistics,
    check_batch_norms,
    check_gradient,
    device_of,
    eval_copy,
    trace,
)
from hansfree.models.surgery.hooked import PermutedBack, hooked_parts
from hansfree.models.surgery.layout import trunk_order
from hansfree.models.surgery.partition import Flow, GraphCut, Partition, Train, permute_layer
from hansfree.models.surgery.tracing import AxisOrder

logger = logging.getLogger(__name__)


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


def is_plain(module: nn.Module) -> bool:
    """Return whether a module does what its class says: hooks (weight norm is one) may change that."""
    has_hooks = bool(module._forward_hooks or module._forward_pre_hooks)
    return not has_hooks and "forward" not in vars(module)


def _stages(head: nn.Module) -> Iterator[Stage]:
    """Part a head at every linear layer past which nothing else is handed on; one stage where that is not visible."""
    nodes = [node for node in head.graph.nodes if node.op != "output"] if isinstance(head, fx.GraphModule) else []
    # Of a parameter with several names, a stage would use one that the state dict does not have.
    is_tied = len(list(head.parameters())) < len(list(head.named_parameters(remove_duplicate=False)))
    if not isinstance(head, fx.GraphModule) or is_tied or any(node.op == "placeholder" for node in nodes[1:]):
        yield Stage(head)
        return
    given, *nodes = nodes
    between: list[fx.Node] = []
    for place, node in enumerate(nodes):
        before = {given, *nodes[:place]}
        is_passage = all(user in before or user is node for other in before for user in other.users)
        if not (is_passage and _is_lone_linear(head, node)):
            between.append(node)
            continue
        if between:
            yield Stage(_part(head, given, between))
        yield Stage(head.get_submodule(str(node.target)), str(node.target))
        given, between = node, []
    if between:
        yield Stage(_part(head, given, between))


def _is_lone_linear(head: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether the node is the only call of a layer of which weight and bias say everything."""
    if node.op != "call_module":
        return False
    module = head.get_submodule(str(node.target))
    calls = sum(other.op == "call_module" and other.target == node.target for other in head.graph.nodes)
    return type(module) is nn.Linear and is_plain(module) and calls == 1  # a parametrized one has a class of its own


def _part(head: fx.GraphModule, given: fx.Node, nodes: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    new = {given: graph.placeholder("given")}
    for node in nodes:
        new[node] = graph.node_copy(node, new.__getitem__)
    graph.output(new[nodes[-1]])
    return fx.GraphModule(head, graph)


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut(Partition):
    """A model in three parts, each taking the tuple that the one before returns.

    The first tensor that the trunk returns is the layer's output, its channels where `CHANNEL_AXIS` says. All tensors
    between the parts have the images along their first dimension.
    """

    layer: str
    traced: bool
    order: AxisOrder | None = None  # of the model's axes in the trunk's output; None: as the model has them

    def head_parameters(self) -> dict[str, nn.Parameter]:
        """Return what is to be trained, by name in the original model; ``functional_call`` on the head takes it too."""
        return {name: self.head.get_parameter(name) for name in self.trainable}

    def head_parts(self) -> HeadParts:
        """Return the head, whole and in stages."""
        return HeadParts(self.head, tuple(_stages(self.head)))

    def model_with(self, state: Mapping[str, Tensor], model: nn.Module) -> nn.Module:
        """Return a copy of ``model`` in which only the head's parameters in ``state`` are replaced."""
        for name, value in state.items():
            if name not in self.trainable:
                raise SplitError(f"{name!r} is not trained after {self.layer!r}.{nearest(name, self.trainable)}")
            if (shape := self.head.get_parameter(name).shape) != value.shape:
                raise SplitError(f"{name!r} has the shape {tuple(shape)}, {tuple(value.shape)} was given.")
        corrected = copy.deepcopy(model)
        with torch.no_grad():
            for name, value in state.items():
                corrected.get_parameter(name).copy_(value)
        return corrected

    def train_mode(self) -> None:
        """Prepare the head for fine-tuning: dropout is active, batch norm keeps its statistics."""
        self.eval_mode()
        for module in self.random:
            module.training = True

    def eval_mode(self) -> None:
        """Make the head deterministic."""
        self.head.eval()


def split(
    model: nn.Module,
    layer: str,
    *,
    example: Tensor | None = None,
    order: AxisOrder | None = None,
    train: Train = "all",
    train_norm: bool = False,
) -> Cut:
    """Split a copy of ``model`` after ``layer``; the parts are on the CPU, and the model itself is not touched.

    Args:
        model: Any module from one batch of images to logits.
        layer: A name that ``list_layers`` shows.
        example: A batch of images, to check the parts against the model, and to see where the layer has its channels; a
            model that cannot be traced needs it.
        order: Of the axes of the layer's output, where an earlier cut with an example saw it (``Cut.order``).
        train: ``"all"`` that follows the layer, or only the ``"last"`` module that has parameters.
        train_norm: Train the affine parameters of batch norms after the layer too; their statistics never change.
    """
    check_choice("train", train, Train)
    try:
        traced = trace(model)
    except SplitError as error:
        reason = str(error)
    else:
        check_batch_norms(traced)
        parts = GraphCut(Flow(traced), layer).parts(train=train, train_norm=train_norm)
        if example is None or _is_exact(parts, model, example):
            order = order if example is None else trunk_order(parts.trunk, layer, example)
            return _as_cut(layer, parts, order)
        reason = f"The traced graph of {type(model).__name__} does not give the model's numbers."
    if example is None:
        raise SplitError(f"{reason} Give `example`, a batch of images: with it the layer is cut by hooks instead.")
    logger.warning("%s The layer is cut by hooks: the same numbers, but the head runs the whole model.", reason)
    parts = hooked_parts(model, layer, example, train=train, train_norm=train_norm)
    return _as_cut(layer, parts, trunk_order(parts.trunk, layer, example))


def _as_cut(layer: str, parts: Partition, order: AxisOrder | None) -> Cut:
    trunk, phi = parts.trunk, parts.phi
    if order is not None and isinstance(trunk, fx.GraphModule) and isinstance(phi, fx.GraphModule):
        permute_layer(trunk, phi, order)
    elif order is not None:
        trunk.order = order  # type: ignore[assignment]  # a plain tuple, not a module
        phi = PermutedBack(order)
    own: dict[str, Any] = {**vars(parts), "phi": phi}
    return Cut(**own, layer=layer, traced=isinstance(trunk, fx.GraphModule), order=order)


def _is_exact(parts: Partition, model: nn.Module, example: Tensor) -> bool:
    """Compare the parts with the model on ``example``, and see that they leave the cached tensors as they were."""
    with torch.no_grad(), NoBatchStatistics():
        expected = eval_copy(model, share=True)(example.clone().to(device_of(model, example))).cpu()
    try:
        with torch.no_grad():
            kept = parts.trunk(example.clone())
            before = [tensor.clone() for tensor in kept]
            given = parts.phi(*kept)
        with torch.enable_grad():
            got = parts.head(*given)
    except RuntimeError as error:
        logger.debug("The traced graph of %s fails: %s", type(model).__name__, error)
        return False
    if got.shape != expected.shape:
        return False
    check_gradient(type(model).__name__, got)
    unchanged = all(torch.allclose(old, new, rtol=0, atol=0, equal_nan=True) for old, new in zip(before, kept))
    scale = float(expected.abs().nan_to_num().max())
    return unchanged and torch.allclose(got, expected, rtol=1e-4, atol=1e-5 * scale, equal_nan=True)
