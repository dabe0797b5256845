"""Small models of every kind, and projections to put into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hansfree.corrections import Projection
from hansfree.models.surgery import insert_after

CHANNELS, CLASSES = 6, 3


def images(count: int = 4, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


class Chain(nn.Module):
    """Layers one after the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def sequential(*layers: nn.Module, seed: int = 0) -> Chain:
    """Return a model in eval mode, with weights from the seed and batch norms that have seen something."""
    model = Chain(*layers)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        for norm in model.modules():
            if isinstance(norm, _BatchNorm) and norm.running_mean is not None and norm.running_var is not None:
                norm.running_mean.copy_(torch.randn(norm.running_mean.shape, generator=generator))
                norm.running_var.copy_(torch.rand(norm.running_var.shape, generator=generator) + 0.5)
    return model.eval()


def projection(channels: int = CHANNELS, *, k: int = 2, pooling: Any = "max", seed: int = 0) -> Projection:
    rng = np.random.default_rng(seed)
    return Projection(np.linalg.qr(rng.normal(size=(channels, k)))[0].T, rng.normal(size=k), pooling=pooling)


def corrected(model: nn.Module, layer: str, **options: Any) -> nn.Module:
    """Put a projection behind a layer; of a chain, behind the layer of that number."""
    path = f"layers.{layer}" if isinstance(model, Chain) else layer
    return insert_after(model, path, projection(**options)).eval()
