"""Fold a projection into the weights where that is exact."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from hansfree.activations import channel_axis, count_positions
from hansfree.corrections import Projection
from hansfree.errors import SplitError
from hansfree.models.surgery import PROJECTION, eval_copy, remove_inserted, scalar_nodes, trace


class NotFoldedError(Exception):
    """Why a projection is in no weights; `fold_projection` makes a sentence of it."""


def through_layer(linear: nn.Linear, projection: Projection) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of the linear layer with the projection of its output in them."""
    if linear.bias is None:
        raise NotFoldedError("the layer has no bias to take up the target")
    D, R, t = _parts(projection)
    return linear.weight - D.T @ (R @ linear.weight), linear.bias + (t - R @ linear.bias) @ D


def through_next(linear: nn.Linear, projection: Projection, *, channels_last: bool) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of a linear layer that reads (channels, positions), shifted by their mean score."""
    D, R, t = _parts(projection)
    outputs, channels = len(linear.weight), D.shape[1]
    layout = (outputs, -1, channels) if channels_last else (outputs, channels, -1)
    axis = 1 if channels_last else 2
    weight = linear.weight.reshape(layout)
    along = weight.sum(axis) @ D.T  # (outputs, k): what a shift along each direction does
    folded = weight - (along @ R).unsqueeze(axis) / weight.shape[axis]
    return folded.reshape(outputs, -1), linear.bias + along @ t


def _parts(projection: Projection) -> tuple[Tensor, Tensor, Tensor]:
    D = projection.directions
    return D, D if projection.readout is None else projection.readout, projection.target


def replaced(linear: nn.Linear, weight: Tensor, bias: Tensor) -> nn.Linear:
    """Return a copy of a linear layer with other parameters."""
    changed = copy.deepcopy(linear)
    changed.weight, changed.bias = (nn.Parameter(each.detach(), requires_grad=False) for each in (weight, bias))
    return changed


Kind = Literal["plain", "layer", "next", "module"]
_EXACT = 1e-9  # of the largest number, in float64: rounding stays far below, another function does not
_ROUNDING = 1e-4  # of the largest logit, in the model's own precision
_SCALES = (1.0, 1e3)  # of the noise: a clamp that never acts on the example acts there


@dataclass(frozen=True)
class Folding:
    """What became of an inserted projection, and a sentence that says it.

    ``"plain"``: there was none; ``"layer"``: it is in the weights of the layer itself; ``"next"``: in those of the next
    linear layer; ``"module"``: it stays a module.
    """

    kind: Kind
    sentence: str


@torch.no_grad()
def fold_projection(model: nn.Module, example: Tensor) -> tuple[nn.Module, Folding]:
    """Return a copy of a corrected model with its projection in the weights where that is exact, else as it is.

    On the example, a few images, the fold has to give the model's numbers.
    """
    plain, inserted = remove_inserted(model)
    if inserted is None:
        return plain, Folding("plain", "The correction is in the weights: load them as you load the original's.")
    try:
        return plain, _fold(plain, _Folder(model, inserted, example.cpu()), model, example)
    except NotFoldedError as reason:
        return copy.deepcopy(model), Folding(
            "module", f"The projection is not folded into weights but stays one small module: {reason}."
        )


def _fold(plain: nn.Module, folder: _Folder, model: nn.Module, example: Tensor) -> Folding:
    """Change the weights of ``plain``; what it then says has to be what ``model`` says."""
    kind: Kind
    try:
        kind, changes = "layer", folder.into_layer()
    except NotFoldedError:
        kind, changes = "next", folder.into_next()
    folder.check(changes, model, example)
    for name, value in changes.items():
        plain.get_parameter(name).copy_(value)
    where = {"layer": "which computes the layer", "next": "the next linear layer after it"}[kind]
    path = next(iter(changes)).rpartition(".")[0]
    size = "" if folder.fits_every_size else f" (for images of {' x '.join(map(str, example.shape[-2:]))} pixels)"
    return Folding(kind, f"The projection is folded exactly into {path!r}, {where}{size}: plain weights.")


class _Folder:
    """The graph around the projection, with the values that the example gives."""

    def __init__(self, model: nn.Module, inserted: nn.Module, example: Tensor) -> None:
        if type(inserted) is not Projection:
            raise NotFoldedError("it does more than to shift along the channels")
        if inserted.gate is not None:
            raise NotFoldedError("it acts only on some images, which plain weights cannot do")
        try:
            self.traced = trace(model)
        except SplitError as error:
            raise NotFoldedError(f"the model's graph is not known ({str(error).rstrip('.')})") from error
        calls = [node for node in self.traced.graph.nodes if node.op == "call_module" and node.target == PROJECTION]
        if len(calls) != 1:
            raise NotFoldedError(f"the model's graph shows {len(calls)} calls of it, not one")
        self.call: fx.Node = calls[0]
        self.scalars = scalar_nodes(self.traced.graph)
        self.source = self.call.all_input_nodes[0]
        self.interpreter = fx.Interpreter(self.traced.root, garbage_collect_values=False, graph=self.traced.graph)
        self.interpreter.run(example.clone())
        self.values: dict[fx.Node, Any] = dict(self.interpreter.env)
        self.activations: Tensor = self.values[self.source].double()
        self.projection = copy.deepcopy(inserted).cpu().double()
        self.fits_every_size = self.activations.ndim == 2

    def into_layer(self) -> dict[str, Tensor]:
        """Return the new parameters of the layer, which is linear with one position."""
        if self.activations.ndim != 2:
            raise NotFoldedError("the layer has several positions")
        self._check_read_once(self.source, by=self.call)
        linear = self._linear(self.source)
        weight, bias = through_layer(linear, self.projection)
        example = self.values[self.source.all_input_nodes[0]].double()
        self._check_equal(nn.Sequential(linear, self.projection), replaced(linear, weight, bias), example)
        return {f"{self.source.target}.weight": weight, f"{self.source.target}.bias": bias}

    def into_next(self) -> dict[str, Tensor]:
        """Return the new parameters of the next linear layer."""
        self._check_read_once(self.source, by=self.call)
        *between, node = self._chain()
        linear = self._linear(node)
        if linear.bias is None:
            raise NotFoldedError(f"{node.target!r} has no bias to take up the target")
        given = self.values[node.all_input_nodes[0]]
        channels = self.projection.directions.shape[1]
        if given.ndim != 2 or given.shape[1] % channels:
            raise NotFoldedError(f"{node.target!r} does not read the layer's channels")
        weight, bias = through_next(linear, self.projection, channels_last=channel_axis(self.activations.ndim) != 1)
        changed = replaced(linear, weight, bias)
        self._check_equal(
            lambda a: linear(self._follow(between, self.projection(a))),
            lambda a: changed(self._follow(between, a)),
            self.activations,
        )
        is_mean = self.projection.pooling == "mean" and given.shape[1] == channels
        self.fits_every_size = self.fits_every_size or is_mean
        return {f"{node.target}.weight": weight, f"{node.target}.bias": bias}

    def check(self, changes: dict[str, Tensor], model: nn.Module, example: Tensor) -> None:
        """Run the graph without the projection on the new parameters; it has to give what the model gives."""
        expected: Tensor = eval_copy(model)(example.cpu().clone())
        for name, value in changes.items():
            self.traced.root.get_parameter(name).copy_(value)
        setattr(self.traced.root, PROJECTION, nn.Identity())
        got = fx.Interpreter(self.traced.root, graph=self.traced.graph).run(example.cpu().clone())
        if not torch.allclose(got, expected, rtol=0, atol=_ROUNDING * float(expected.abs().max())):
            raise NotFoldedError("in the precision of the model, the folded weights give other numbers")

    def _chain(self) -> Iterator[fx.Node]:
        """Yield what follows the projection, one after the other, up to and with the first node with parameters."""
        node = self.call
        while True:
            users = [user for user in node.users if user not in self.scalars]
            if len(users) != 1 or users[0].op == "output":
                raise NotFoldedError("no single linear layer reads all of the layer's output")
            previous, (node,) = node, users
            if [parent for parent in node.all_input_nodes if parent not in self.scalars] != [previous]:
                raise NotFoldedError(f"{node.name!r} mixes the layer's output with other tensors")
            yield node
            module = self.traced.module_of(node)
            if module is not None and next(module.parameters(), None) is not None:
                return

    def _follow(self, nodes: list[fx.Node], activations: Tensor) -> Tensor:
        """Send activations through the operations between the projection and the next linear layer."""
        self.interpreter.env = {**self.values, self.call: activations}
        for node in nodes:
            activations = self.interpreter.env[node] = self.interpreter.run_node(node)
        return activations

    def _linear(self, node: fx.Node) -> nn.Linear:
        module = self.traced.module_of(node)
        # By exact class: a parametrized layer has a class of its own. Hooks may change what it returns.
        if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
            raise NotFoldedError(f"{node.name!r} is no plain linear layer")
        self._check_own(node)
        return copy.deepcopy(module).double()

    def _check_own(self, node: fx.Node) -> None:
        """Check that a module is called once and shares no parameters: they would change elsewhere too."""
        root, path = self.traced.root, str(node.target)
        calls = sum(other.op == "call_module" and other.target == path for other in self.traced.graph.nodes)
        names: dict[int, list[str]] = {}
        for name, parameter in root.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        tied = any(len(names[id(parameter)]) > 1 for parameter in root.get_submodule(path).parameters())
        if calls != 1 or tied:
            raise NotFoldedError(f"the weights of {path!r} are used elsewhere too")

    def _check_read_once(self, node: fx.Node, *, by: fx.Node) -> None:
        if {user for user in node.users if user not in self.scalars} != {by}:
            raise NotFoldedError(f"{node.name!r} is also read without the projection")

    def _check_equal(self, old: Any, new: Any, example: Tensor) -> None:
        """Compare on the example and on noise around it, of both signs and two sizes."""
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(example.shape, generator=generator, dtype=torch.float64)
        spread = float(example.std()) or 1.0
        for given in (example, *(noise * (spread * scale) for scale in _SCALES)):
            expected, got = old(given), new(given)
            if not torch.allclose(got, expected, rtol=0, atol=_EXACT * float(expected.abs().max())):
                raise NotFoldedError(self._why_not())

    def _why_not(self) -> str:
        if self.projection.pooling == "max" and count_positions(tuple(self.activations.shape)) > 1:
            return "the score is taken from the maximum over the positions, which is not linear"
        return "what lies between the layer and the next linear layer is not linear, or does not keep the mean"
