"""The paper's RRR, written out plainly: the input gradient is differentiated once more, through the whole model.

As in ``paper.py`` the trunk's parameters are frozen, so that autograd computes no gradient for them. Its activations
stay in the graph all the same: the way to the pixels leads through them, there and back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from benchmarks.speed.paper import OPTIMIZERS
from hansfree.corrections.training import FineTuning


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
