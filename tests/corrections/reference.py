"""The paper's penalties, slowly and literally: hooks on the whole model, and a backward through a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.corrections.examples import Case


def output_and_activation(model: nn.Module, case: Case, images: Tensor) -> tuple[Tensor, Tensor]:
    """Run the whole model; return the logits, and the layer's output as part of the same graph."""
    recorded: list[Tensor] = []

    def keep_output(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        recorded.append(output)
        return output.clone()  # a ReLU in place would overwrite it

    def keep_input(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        recorded.append(args[0])
        return (args[0].clone(),)

    module = model.get_submodule(case.module)
    hook = keep_output if case.side == "output" else keep_input
    register = module.register_forward_hook if case.side == "output" else module.register_forward_pre_hook
    handle = register(hook)
    try:
        logits = model(images)
    finally:
        handle.remove()
    return logits, recorded[0]


def gradient_at_layer(
    model: nn.Module, case: Case, images: Tensor, measured: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the logits, and the gradient of ``measured(logits)`` at the layer: ``(n, positions, channels)``."""
    logits, activation = output_and_activation(model, case, images)
    (gradient,) = torch.autograd.grad(measured(logits).sum(), activation, create_graph=True)
    if gradient.ndim == 4:
        gradient = gradient.flatten(2).transpose(1, 2)
    return logits, gradient if gradient.ndim == 3 else gradient[:, None]


def along(gradient: Tensor, direction: Tensor) -> Tensor:
    """Return ``grad_a f . h`` at each position, ``(n, positions)``."""
    result = torch.zeros(gradient.shape[:2], dtype=gradient.dtype)
    for channel, weight in enumerate(direction):
        result = result + weight * gradient[:, :, channel]
    return result


def rr_loss(model: nn.Module, case: Case, images: Tensor, m: Tensor, direction: Tensor) -> Tensor:
    """Return Eq. 5 per image, with ``h`` at every position: ``(grad_a [m . f] . h)^2``."""
    _, gradient = gradient_at_layer(model, case, images, lambda logits: logits @ m)
    return along(gradient, direction).sum(1) ** 2


def squared_cosine(gradient: Tensor, direction: Tensor) -> Tensor:
    """Return the squared cosine between the gradient, summed over positions, and the direction."""
    summed = gradient.sum(1)
    return (summed @ direction) ** 2 / ((summed * summed).sum(1) * (direction @ direction))


def rrr_loss(model: nn.Module, images: Tensor, masks: Tensor, *, target: int | None, norm: str = "squared") -> Tensor:
    """Return the penalty per image: Ross et al.'s squared gradient on the mask's pixels, or the published cosine."""
    pixels = images.clone().requires_grad_()
    logits = model(pixels)
    log_probabilities = logits.log_softmax(1) if norm == "squared" else (logits.softmax(1) + 1e-5).log()
    measured = log_probabilities.sum() if target is None else log_probabilities[:, target].sum()
    (gradient,) = torch.autograd.grad(measured, pixels, create_graph=True)
    if norm == "cosine":
        size, area = gradient.sum(1).abs(), masks.sum((1, 2)).double().clamp(1)
        return (masks * size).sum((1, 2)) / (area.sqrt() * size.square().sum((1, 2)).sqrt())
    return (masks[:, None] * gradient**2).sum((1, 2, 3))
