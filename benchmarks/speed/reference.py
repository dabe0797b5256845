"""The paper's procedures, written out plainly: the reference for speed.

The trunk is frozen and, for RR-ClArC, the graph starts at the layer: autograd computes nothing that is not needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hansfree.corrections.training import FineTuning

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@dataclass(frozen=True)
class Activation:
    """The activation that follows a layer, and which of its calls: what enters it is the layer's output."""

    module: str
    call: int = 0


ACTIVATIONS = {
    "demo": Activation("features.11"),
    "vgg16": Activation("features.29"),
    "resnet18": Activation("layer4.1.relu", call=1),  # the block's one ReLU serves twice; the sum comes second
    "efficientnet_b0": Activation("features.8.2"),
}
"""By architecture: what the output of its layer enters."""


class PaperTraining:
    """Fine-tune a copy of the model with one strength, as the paper does.

    Args:
        activation: What the layer's output enters.
        trainable: Names of the parameters after the layer; all others are frozen.
        direction: ``(channels,)``, in the unit of the derivative.
    """

    def __init__(
        self,
        model: nn.Module,
        activation: Activation,
        trainable: Iterable[str],
        direction: Tensor,
        *,
        strength: float,
        tuning: FineTuning,
    ) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.train()  # all of them stand after the layer
        self.trained = [self.model.get_parameter(name).requires_grad_() for name in trainable]
        self.activation, self.strength = activation, strength
        self.direction = direction[:, None, None]
        self.optimizer = OPTIMIZERS[tuning.optimizer](self.trained, lr=tuning.learning_rate)
        self.noise = torch.Generator().manual_seed(tuning.seed)

    def step(self, images: Tensor, labels: Tensor) -> None:
        """Take one step of the optimiser."""
        loss = self.loss(images, labels, self._signs)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def loss(self, images: Tensor, labels: Tensor, signs: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the cross-entropy plus the strength times the squared derivative along the direction (Eq. 5).

        Args:
            images: The whole model runs on them.
            labels: Their classes.
            signs: Gives the paper's ``m``, +1 or -1 for every logit.
        """
        calls = 0
        layer = torch.empty(0)

        def start_graph(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor] | None:
            nonlocal calls, layer
            calls += 1
            if calls != self.activation.call + 1:
                return None
            layer = inputs[0].requires_grad_()
            return (layer.clone(),)  # the activation may write in place, which a leaf does not allow

        handle = self.model.get_submodule(self.activation.module).register_forward_pre_hook(start_graph)
        try:
            logits = self.model(images)
        finally:
            handle.remove()
        (gradient,) = torch.autograd.grad((signs(logits) * logits).sum(), layer, create_graph=True)
        derivative = (gradient * self.direction).sum((1, 2, 3))
        return nn.functional.cross_entropy(logits, labels) + self.strength * derivative.square().mean()

    def _signs(self, logits: Tensor) -> Tensor:
        return 2 * torch.randint(0, 2, logits.shape, generator=self.noise).to(logits) - 1


class PaperRRR:
    """Fine-tune a copy of the model with the squared input gradient on the mask as its penalty.

    Args:
        trainable: Names of the parameters after the layer; all others are frozen.
    """

    def __init__(self, model: nn.Module, trainable: Iterable[str], *, strength: float, tuning: FineTuning) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.train()  # all of them stand after the layer
        self.trained = [self.model.get_parameter(name).requires_grad_() for name in trainable]
        self.strength = strength
        self.optimizer = OPTIMIZERS[tuning.optimizer](self.trained, lr=tuning.learning_rate)

    def step(self, images: Tensor, labels: Tensor, masks: Tensor) -> None:
        """Take one step of the optimiser."""
        loss = self.loss(images, labels, masks)
        self.optimizer.zero_grad()
        loss.backward(inputs=self.trained)  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def loss(self, images: Tensor, labels: Tensor, masks: Tensor) -> Tensor:
        """Return the cross-entropy plus the strength times the penalty.

        Args:
            images: The whole model runs on them.
            labels: Their classes.
            masks: ``(n, height, width)``, the artifact's pixels.
        """
        pixels = images.detach().requires_grad_()
        logits = self.model(pixels)
        (gradient,) = torch.autograd.grad(logits.log_softmax(1).sum(), pixels, create_graph=True)
        on_mask = (gradient * masks[:, None]).square().sum((1, 2, 3))
        return nn.functional.cross_entropy(logits, labels) + self.strength * on_mask.mean()
