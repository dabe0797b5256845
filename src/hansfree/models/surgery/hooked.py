"""The same cut by hooks, where tracing fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError
from hansfree.models.surgery.graph import (
    NoBatchStatistics,
    check_gradient,
    default_dtype_kept,
    eval_copy,
    is_dropout_like,
    missing_sentence,
    not_logits,
)
from hansfree.models.surgery.partition import Partition, Train, is_norm_parameter
from hansfree.models.surgery.tracing import AxisOrder, inverse, reach


@contextmanager
def hooked(model: nn.Module, edit: Callable[[str, Any], Any]) -> Iterator[None]:
    """Send the output of every module through ``edit(path, output)`` for the length of the block."""
    handles = [
        module.register_forward_hook(lambda _m, _a, output, path=path: edit(path, output))
        for path, module in model.named_modules()
    ]
    try:
        with default_dtype_kept(model):
            yield
    finally:
        for handle in handles:
            handle.remove()


class AutogradFlow:
    """One run of a copy of a model, with a mark in autograd's graph behind every module that returns a tensor."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.model, self.kind = model, type(model).__name__
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        self._marks: dict[str, Any] = {}
        self._images = example.clone().requires_grad_()
        with hooked(model, self._mark), torch.enable_grad():
            self._logits = model(self._images.clone())
        if not isinstance(self._logits, Tensor):
            raise not_logits(self.kind, self._logits)
        check_gradient(self.kind, self._logits)

    def _mark(self, path: str, output: Any) -> Any:
        if not path:
            return output
        if not isinstance(output, Tensor):
            self._marks[path] = type(output).__name__
            return output
        marked = output.clone()  # a node of its own, also where a container returns what its last module did
        self._marks[path] = marked.grad_fn
        return marked

    def parameters_after(self, layer: str) -> dict[str, int]:
        """Return the parameters whose first use together with activations depends on the layer, and when that is.

        A gradient alone does not show it: beside a skip connection, parameters before the layer have one too.
        """
        mark = self._marks.get(layer)
        if isinstance(mark, str):
            raise _several(layer, mark)
        below = _below(self._logits.grad_fn, stop=mark)
        if mark is None or mark not in below:
            raise SplitError(f"The output of {self.kind} does not depend on {layer!r}. Choose another layer.")
        users = defaultdict(list)
        for node in below:
            for child, _ in () if node is mark else node.next_functions:
                users[child].append(node)
        accumulators = {id(node.variable): node for node in below if hasattr(node, "variable")}
        depends = reach([mark], users.__getitem__)
        images = accumulators.get(id(self._images))
        mixed = depends | reach([] if images is None else [images], users.__getitem__)
        before = {id(node.variable) for node in _below(mark) if hasattr(node, "variable")}
        after = {}
        for name, parameter in self.model.named_parameters():
            uses = _first(users, accumulators.get(id(parameter)), mixed)
            if not uses & depends:
                continue
            if uses - depends or id(parameter) in before:
                raise SplitError(
                    f"{name!r} of {self.kind} is used before and after {layer!r}. Choose an earlier layer."
                )
            after[name] = max(node._sequence_nr() for node in uses)
        return after


def _below(root: Any, *, stop: Any = None) -> set[Any]:
    """Return all nodes of the autograd graph under ``root``, and not beyond ``stop``."""

    def children(node: Any) -> list[Any]:
        return [] if node is stop else [child for child, _ in node.next_functions if child is not None]

    return reach([root], children)


def _first(users: dict[Any, list[Any]], start: Any, wanted: set[Any]) -> set[Any]:
    """Return the nearest users of ``start`` that are in ``wanted``, beyond which the walk does not go."""

    def beyond(node: Any) -> list[Any]:
        return [] if node in wanted else users[node]

    return reach([] if start is None else beyond(start), beyond) & wanted


def hooked_parts(model: nn.Module, layer: str, example: Tensor, *, train: Train, train_norm: bool) -> Partition:
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
    return Partition(
        root=own,
        trunk=trunk,
        phi=Unchanged(),
        head=_HookedHead(own, layer),
        trainable=tuple(trained),
        may_change=tuple(eligible),
        parameters_after=sum(own.get_parameter(name).numel() for name in after),
        random=tuple(random),
    )


def _several(layer: str, kind: str) -> SplitError:
    return SplitError(f"{layer!r} returns a {kind}, not a tensor. Choose another layer.")


@contextmanager
def output_edited(model: nn.Module, layer: str, edit: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the layer's output by ``edit(output)`` for the length of the block, in which it must be called once."""
    count = 0

    def hook(_module: nn.Module, _args: Any, output: Any) -> Tensor:
        nonlocal count
        count += 1
        if not isinstance(output, Tensor):
            raise _several(layer, type(output).__name__)
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

    # A class attribute, so that it is not part of the fingerprint of a trunk that permutes nothing.
    order: AxisOrder | None = None

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


class PermutedBack(nn.Module):
    """Put the axes of the layer's output back as the model has them."""

    def __init__(self, order: AxisOrder) -> None:
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

    def record(path: str, output: Any) -> Any:
        order.append(path)
        outputs[path] = output
        return output

    with hooked(model, record), torch.no_grad():
        model(example.clone())
    return order, outputs


def _position(calls: dict[str, int], parameter: str) -> int:
    """Return when the innermost called module around the parameter returned; -1 for a parameter of the model itself."""
    path = parameter.rpartition(".")[0]
    while path not in calls and path:
        path = path.rpartition(".")[0]
    return calls[path] if path else -1
