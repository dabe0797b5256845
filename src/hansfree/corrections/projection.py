"""The shift that P-ClArC and A-ClArC make in a layer's output."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.activations import Pooling
from hansfree.activations.positions import at_every_position, pool


class Projection(nn.Module):
    """Move activations along the bias directions until their pooled score is the target, ``a + gamma(x) h``.

    The score is taken from the pooled activation and the same shift is made at every position.
    """

    directions: Tensor
    target: Tensor

    def __init__(self, directions: np.ndarray, target: np.ndarray, *, pooling: Pooling) -> None:
        super().__init__()
        self.pooling: Pooling = pooling
        self.register_buffer("directions", torch.as_tensor(directions, dtype=torch.float32))
        self.register_buffer("target", torch.as_tensor(target, dtype=torch.float32))

    def forward(self, activations: Tensor) -> Tensor:
        """Return the shifted activations."""
        gamma = self.target - pool(activations, self.pooling) @ self.directions.T
        return activations + at_every_position(gamma @ self.directions, activations.ndim)
