"""Gradients of large weights, written where those of the step before were.

The memory of a tensor of 67 MB goes back to the system when it is freed, and comes from there page by page, each of
them zeroed, when the next one is made. In a step of VGG-16's head that took a quarter of the time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LARGE = 2**25  # bytes; malloc keeps what is smaller


class Recycling:
    """The memory of gradients that were used, as far as products asked for it."""

    def __init__(self) -> None:
        self._spare: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
        self._lent: Counter[torch.Size] = Counter()  # in this step

    def product(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight.T``; the weight's gradient takes memory from here.

        Where nothing is trained there is none, and a forward-mode pass could not go through a product of our own.
        """
        is_large = weight.numel() * weight.element_size() >= _LARGE and weight.device.type == "cpu"
        if not is_large or rows.ndim != 2 or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return functional.linear(rows, weight)
        return _Product.apply(rows, weight, self)  # type: ignore[no-any-return]

    def take_back(self, parameters: Iterable[Tensor]) -> None:
        """Take the gradients off parameters ``(1, ...)``, after a step, and keep those that a product asked for."""
        for parameter in parameters:
            shape = parameter.shape[1:]
            if parameter.grad is not None and self._lent[shape]:
                self._lent[shape] -= 1
                self._spare[shape].append(parameter.grad[0])
            parameter.grad = None
        self._lent.clear()

    def lend(self, shape: torch.Size) -> Tensor | None:
        """Return memory for a gradient; None where there is none yet."""
        self._lent[shape] += 1
        return self._spare[shape].pop() if self._spare[shape] else None


class _Product(torch.autograd.Function):
    """A matrix product that is differentiated once."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, memory: Recycling) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.memory = memory
        return rows @ weight.T

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        rows, weight = ctx.saved_tensors
        by_weight = torch.mm(gradient.T, rows, out=ctx.memory.lend(weight.shape))
        return gradient @ weight if ctx.needs_input_grad[0] else None, by_weight, None
