"""Copies of a head with weights of their own, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, jvp, vmap
from torch.nn import functional

from hansfree.activations import Features, Live
from hansfree.splitting import HeadParts, Split, Stage
from hansfree.training.recycling import Recycling
from hansfree.training.span import Span


class WeightedHead:
    """A head with weights of its own: the head's inputs -> logits."""

    def __init__(self, parts: HeadParts, tensors: dict[str, Tensor], *, memory: Recycling | None = None) -> None:
        self._parts, self._tensors = parts, tensors
        self._product = functional.linear if memory is None else memory.product

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits."""
        return functional_call(self._parts.whole, self._tensors, inputs)  # type: ignore[no-any-return]

    def push(self, values: Live, tangents: Live) -> tuple[Tensor, Tensor]:
        """Return the logits, and their derivatives ``(k, n, classes)`` along tangents ``(k, n, ...)``.

        A linear layer takes values and tangents together. So its weight has one product, and one gradient, instead of
        two: those of VGG-16 have 411 and 67 MB.
        """
        return self._push(self._parts.stages, values, tangents)

    def take_steps(self, values: Live, steps: Live) -> tuple[Tensor, Tensor]:
        """Return the logits, and those ``(k, n, classes)`` after whole steps ``(k, n, ...)``, with one dropout mask."""
        moved = []
        for step in zip(*steps):
            with torch.random.fork_rng():
                moved.append(self(*map(torch.add, values, step)))
        return self(*values), torch.stack(moved)

    def _push(self, stages: Iterable[Stage], values: Live, tangents: Live) -> tuple[Tensor, Tensor]:
        for stage in stages:
            if stage.path is None:
                values, tangents = push(lambda *inputs, stage=stage: (self._run(stage, *inputs),), values, tangents)
                continue
            (value,), (tangent,) = values, tangents
            weight, bias = self._linear(stage)
            product, along = self._both(value, tangent, weight)
            values, tangents = (product + bias,), (along,)
        return values[0], tangents[0]

    def _both(self, value: Tensor, tangent: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._product(torch.cat([value, tangent.flatten(0, 1)]), weight)
        return rows[: len(value)], rows[len(value) :].unflatten(0, tangent.shape[:2])  # type: ignore[no-untyped-call]

    def _linear(self, stage: Stage) -> tuple[Tensor, Tensor | float]:
        return self._tensors[f"{stage.path}.weight"], self._tensors.get(f"{stage.path}.bias", 0.0)

    def _run(self, stage: Stage, *inputs: Tensor) -> Tensor:
        if stage.path is not None:
            weight, bias = self._linear(stage)
            return self._product(inputs[0], weight) + bias
        own = [name for name, _ in (*stage.module.named_parameters(), *stage.module.named_buffers())]
        tensors = {name: self._tensors[name] for name in own}
        return functional_call(stage.module, tensors, inputs)  # type: ignore[no-any-return]


class SpannedHead(WeightedHead):
    """A head whose inputs are given by a `Span`: coordinates, and what the untrained first layer makes of the rest."""

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits."""
        first, *others = self._parts.stages
        coordinates, rest = inputs
        value = self._run(first, coordinates) + rest
        for stage in others:
            value = self._run(stage, value)
        return value

    def push(self, values: Live, tangents: Live) -> tuple[Tensor, Tensor]:
        """Return the logits, and their derivatives."""
        first, *others = self._parts.stages
        (value, rest), (tangent, rest_along) = values, tangents
        weight, bias = self._linear(first)
        product, along = self._both(value, tangent, weight)
        return self._push(others, (product + bias + rest,), (along + rest_along,))


def push(function: Callable[..., Live], values: Live, tangents: Live) -> tuple[Live, Live]:
    """Return what a function makes of values, and of tangents ``(k, n, ...)`` along with them."""

    def along(*tangent: Tensor) -> tuple[Live, Live]:
        return jvp(function, values, tangent)  # type: ignore[return-value]

    if len(tangents[0]) == 1:
        outputs, pushed = along(*(tangent[0] for tangent in tangents))
        return outputs, tuple(each[None] for each in pushed)
    outputs, pushed = vmap(along, randomness="same")(*tangents)  # one dropout mask for all directions
    return tuple(each[0] for each in outputs), pushed


class Heads:
    """Copies of one head with weights of their own, stacked along a first axis.

    Args:
        span: Where the first layer's weight is kept in the coordinates of what the training images span.
    """

    def __init__(
        self, cut: Split, count: int, device: str, *, dtype: torch.dtype | None = None, span: Span | None = None
    ) -> None:
        self.cut, self.parts, self.span = cut, cut.head_parts(), span
        self.count, self.memory = count, Recycling()
        self._kind = WeightedHead if span is None else SpannedHead
        trained = dict(cut.head_parameters())
        self.parameters = {
            name: parameter.detach().to(device, dtype).expand(count, *parameter.shape).clone().requires_grad_()
            for name, parameter in (trained if span is None else trained | {span.name: span.start}).items()
        }
        # Batch norm's statistics and the like are handed over too: the module itself stays where it is.
        known = {id(parameter) for parameter in trained.values()}
        tensors = [*cut.head.named_parameters(), *cut.head.named_buffers()]
        self.fixed = {
            name: tensor.detach().to(device, dtype if tensor.is_floating_point() else None)
            for name, tensor in tensors
            if id(tensor) not in known
        }

    def each(self, function: Callable[..., Any], *per_head: Tensor) -> Any:
        """Return ``function(head, *per_head)`` for every head, stacked along a first axis."""

        def call(parameters: dict[str, Tensor], *arguments: Tensor) -> Any:
            tensors, memory = {**self.fixed, **parameters}, self.memory if self.count == 1 else None
            return function(self._kind(self.parts, tensors, memory=memory), *arguments)

        if self.count > 1:
            return vmap(call, randomness="same")(self.parameters, *per_head)
        # squeeze, not index: its backward is a view, where a select would copy VGG-16's 411 MB
        only = {name: parameter.squeeze(0) for name, parameter in self.parameters.items()}
        return call(only, *(argument.squeeze(0) for argument in per_head)).unsqueeze(0)

    @torch.no_grad()
    def logits(self, features: Features, *, batch_size: int = 512) -> Tensor:
        """Return the logits of all images without dropout, ``(heads, n, classes)``."""
        self.cut.eval_mode()
        parts = []
        for start in range(0, len(features), batch_size):
            values, _ = self.rows(features, slice(start, start + batch_size))
            parts.append(self.each(lambda head, values=values: head(*values)))
        return torch.cat(parts, dim=1).cpu()

    def rows(self, features: Features, index: np.ndarray | slice) -> tuple[Live, Live]:
        """Return values and tangents of some images as these heads take them."""
        seen = features if self.span is None else self.span.written(features)
        return seen.rows(index, str(next(iter(self.parameters.values())).device))

    @torch.no_grad()
    def are_finite(self) -> list[bool]:
        """Say for every head whether all of its weights are numbers."""
        ends = [torch.stack(torch.aminmax(p.flatten(1), dim=1)) for p in self.parameters.values()]  # no copy is made
        return torch.isfinite(torch.cat(ends)).all(0).tolist()

    def state(self, number: int) -> dict[str, Tensor]:
        """Return the weights of one head under the original model's names."""
        weights = {name: parameter[number].detach() for name, parameter in self.parameters.items()}
        if self.span is not None:
            weights[self.span.name] = self.span.whole(weights[self.span.name])
        return {name: tensor.cpu().clone() for name, tensor in weights.items()}
