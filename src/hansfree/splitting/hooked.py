"""Cut a model that cannot be traced, by hooks on the layer: the same numbers, slower.

The head runs the whole model on the images and replaces the layer's output on the way, so the trunk hands the images
on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError
from hansfree.splitting.autograd_flow import AutogradFlow
from hansfree.splitting.batch_statistics import NoBatchStatistics
from hansfree.splitting.graph import eval_copy, missing_sentence
from hansfree.splitting.inplace import is_dropout_like
from hansfree.splitting.orders import Order, inverse
from hansfree.splitting.partition import Train, is_norm_parameter


@dataclass(frozen=True, eq=False)
class HookedParts:
    """The three parts, all of them over one copy of the model."""

    model: nn.Module
    trunk: nn.Module
    phi: nn.Module
    head: nn.Module
    trainable: tuple[str, ...]
    may_change: tuple[str, ...]
    parameters_after: int
    random: tuple[nn.Module, ...]


def turn_hooked(parts: HookedParts, order: Order) -> HookedParts:
    """Turn the axes of the layer's output behind the trunk, and back in phi."""
    parts.trunk.order = order  # type: ignore[assignment]  # a plain tuple, not a module
    return replace(parts, phi=TurnedBack(order))


def hooked_parts(model: nn.Module, layer: str, example: Tensor, *, train: Train, train_norm: bool) -> HookedParts:
    """Cut a copy of ``model`` at the module ``layer``; what follows it is found by autograd on ``example``."""
    own = eval_copy(model)
    with NoBatchStatistics():
        calls = _calls(own, layer, example)
    after = AutogradFlow(own, example).parameters_after(layer)
    eligible = [name for name in after if train_norm or not is_norm_parameter(own, name)]
    if not eligible:
        kind = type(model).__name__
        raise SplitError(f"No trainable parameter of {kind} follows {layer!r}. Choose an earlier layer.")
    trained, start = eligible, calls[layer]
    if train == "last":
        owner = max(eligible, key=after.__getitem__).rpartition(".")[0]
        trained = [name for name in eligible if name.rpartition(".")[0] == owner]
        start = max(start, *(_position(calls, name) for name in after if name not in trained), -1)
    random = [m for path, m in own.named_modules() if is_dropout_like(m) and calls.get(path, -1) > start]
    # The trunk's modules are its own, so that dropout in the head does not reach it; the tensors are shared.
    trunk = _HookedTrunk(eval_copy(own, share=True), layer)
    count = sum(own.get_parameter(name).numel() for name in after)
    return HookedParts(
        model=own,
        trunk=trunk,
        phi=Unchanged(),
        head=_HookedHead(own, layer),
        trainable=tuple(trained),
        may_change=tuple(eligible),
        parameters_after=count,
        random=tuple(random),
    )


@contextmanager
def output_edited(model: nn.Module, layer: str, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the layer's output by ``edit(output)`` for the length of the block, in which it must be called once."""
    count = 0

    def hook(_module: nn.Module, _args: Any, output: Any) -> Tensor:
        nonlocal count
        count += 1
        if not isinstance(output, Tensor):
            raise SplitError(f"{layer!r} returns a {type(output).__name__}, not a tensor. Choose another layer.")
        return edit(output)

    handle = model.get_submodule(layer).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    if count != 1:
        raise SplitError(f"{type(model).__name__} called {layer!r} {count} times on these images, not once.")


class _HookedTrunk(nn.Module):
    """Run the model and return the layer's output, and the images."""

    # Of the class, so that the fingerprint of a trunk that turns nothing does not speak of it.
    order: Order | None = None

    def __init__(self, model: nn.Module, layer: str) -> None:
        super().__init__()
        self.model = model
        self.layer = layer

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        kept: list[Tensor] = []

        def keep(output: Tensor) -> Tensor:
            kept.append(output.clone())  # what follows may overwrite it
            return output

        with output_edited(self.model, self.layer, keep):
            self.model(images.clone())
        return (kept[0] if self.order is None else kept[0].permute(self.order)), images


class Unchanged(nn.Module):
    """Hand everything on."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return them as they are."""
        return tensors


class TurnedBack(nn.Module):
    """Put the axes of the layer's output back as the model has them."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = inverse(order)

    def forward(self, output: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Return the layer's output as the model made it, and the others as they are."""
        return output.permute(self.order).contiguous(), *others


class _HookedHead(nn.Module):
    """Run the model on the images with the layer's output replaced; the parameters keep the model's own names."""

    def __init__(self, model: nn.Module, layer: str) -> None:
        super().__init__()
        # Shared by reference: `functional_call` and `.to` on this module then act on the model itself.
        for name in ("_parameters", "_buffers", "_modules"):
            self.__dict__[name] = getattr(model, name)
        self.__dict__["_whole"] = model, layer  # not as attributes: the model may have modules of these names
        self.eval()

    def forward(self, output: Tensor, images: Tensor) -> Any:
        model, layer = self.__dict__["_whole"]
        with output_edited(model, layer, lambda _: output.clone()):
            return model(images.clone())


def check_module(model: nn.Module, layer: str) -> None:
    """Refuse a layer that is no module of this model, which cannot be traced."""
    known = [path for path, _ in model.named_modules() if path]
    if layer not in known:
        kind = type(model).__name__
        raise LayerNotFoundError(
            f"{missing_sentence(kind, layer, known)} {kind} is not traced: only modules are layers."
        )


def module_facts(
    model: nn.Module, example: Tensor
) -> Iterator[tuple[str, str, int, bool, int, tuple[int, ...] | None]]:
    """Yield name, class, calls, use, parameters after it and shape of every module, in the order of the calls."""
    own = eval_copy(model)
    order, outputs = run_recorded(own, example)
    flow = AutogradFlow(own, example)
    for path in dict.fromkeys(path for path in order if path):
        shape = tuple(outputs[path].shape[1:]) if isinstance(outputs[path], Tensor) else None
        names: dict[str, int] = {}
        if order.count(path) == 1 and shape is not None:
            with suppress(SplitError):
                names = flow.parameters_after(path)
        count = sum(own.get_parameter(name).numel() for name in names)
        is_usable = any(not is_norm_parameter(own, name) for name in names)
        yield path, type(own.get_submodule(path)).__name__, order.count(path), is_usable, count, shape


def _calls(model: nn.Module, layer: str, example: Tensor) -> dict[str, int]:
    """Return when each module last returned, as a position; refuse a layer that is not called exactly once."""
    check_module(model, layer)
    kind, (order, _) = type(model).__name__, run_recorded(model, example)
    count = order.count(layer)
    if count == 0:
        raise LayerNotFoundError(f"{kind} does not call {layer!r} in eval mode.")
    if count > 1:
        raise AmbiguousLayerError(f"{kind} calls {layer!r} {count} times, and is not traced: choose another module.")
    return {path: position for position, path in enumerate(order)}


def run_recorded(model: nn.Module, example: Tensor) -> tuple[list[str], dict[str, Any]]:
    """Run the model; return the modules in the order in which they returned, and what they returned."""
    order: list[str] = []
    outputs: dict[str, Any] = {}

    def record(path: str, output: Any) -> None:
        order.append(path)
        outputs[path] = output

    handles = [
        module.register_forward_hook(lambda _m, _a, output, path=path: record(path, output))
        for path, module in model.named_modules()
    ]
    try:
        with torch.no_grad():
            model(example.clone())
    finally:
        for handle in handles:
            handle.remove()
    return order, outputs


def _position(calls: dict[str, int], parameter: str) -> int:
    """Return when the innermost called module around the parameter returned; -1 for a parameter of the model itself."""
    path = parameter.rpartition(".")[0]
    while path not in calls and path:
        path = path.rpartition(".")[0]
    return calls[path] if path else -1
