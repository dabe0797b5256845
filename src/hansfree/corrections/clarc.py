"""P-ClArC and A-ClArC: projections after the layer."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.activations import Activations, Pooling
from hansfree.activations.cache import at_every_position, pool
from hansfree.corrections.base import CAVCorrection
from hansfree.corrections.training import HeadBatch, WeightedHead

Numbers: TypeAlias = np.ndarray | Tensor


class Projection(nn.Module):
    """Move activations along the bias directions until their pooled score is the target, ``a + gamma(x) h``.

    The score is taken from the pooled activation and the same shift is made at every position.

    Args:
        directions: ``(k, channels)``, along which activations move.
        target: ``(k,)``, the scores that they get.
        readout: ``(k, channels)``, along which scores are taken; None: the directions themselves.
        gate: ``(k, k)`` with ``threshold`` ``(k,)``: direction ``i`` is moved along only where ``gate[i]`` times the
            scores exceeds ``threshold[i]``; None: always.
    """

    directions: Tensor
    target: Tensor
    readout: Tensor | None
    gate: Tensor | None
    threshold: Tensor | None

    def __init__(
        self,
        directions: Numbers,
        target: Numbers,
        *,
        pooling: Pooling,
        readout: Numbers | None = None,
        gate: Numbers | None = None,
        threshold: Numbers | None = None,
    ) -> None:
        super().__init__()
        self.pooling: Pooling = pooling
        given = {"directions": directions, "target": target, "readout": readout, "gate": gate, "threshold": threshold}
        for name, values in given.items():  # None is in no state_dict: the keys tell what a projection does
            self.register_buffer(name, None if values is None else torch.as_tensor(values, dtype=torch.float32))

    def forward(self, activations: Tensor) -> Tensor:
        """Return the shifted activations."""
        pooled = pool(activations, self.pooling)
        gamma = self.target - self.scores(pooled)
        if self.gate is not None:
            gamma = gamma * self.fires(pooled)
        return activations + at_every_position(gamma @ self.directions, activations.ndim)

    def scores(self, pooled: Tensor) -> Tensor:
        """Return the coordinates of pooled activations, ``(n, k)``."""
        return pooled @ (self.directions if self.readout is None else self.readout).T

    def fires(self, pooled: Tensor) -> Tensor:
        """Say along which directions pooled activations are moved, ``(n, k)``."""
        scores = self.scores(pooled)
        if self.gate is None or self.threshold is None:
            return torch.ones_like(scores, dtype=torch.bool)
        return scores @ self.gate.T > self.threshold


class ShiftedCorrection(CAVCorrection):
    """A correction that shifts activations along the CAV, in training or for good."""

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits; the shift does the work."""
        return head(*batch.values), None

    def shift_to(
        self,
        score: np.ndarray,
        activations: Activations,
        *,
        gate: np.ndarray | None = None,
        threshold: np.ndarray | None = None,
    ) -> Projection:
        """Return the shift to a score along each direction, everywhere or only where the gate fires."""
        return Projection(self.cav.directions_, score, pooling=activations.pooling, gate=gate, threshold=threshold)


class PClArC(ShiftedCorrection, name="p-clarc"):
    """Fine-tune as Vanilla, then shift every activation to the mean score of clean images, in the model itself."""

    title = "P-ClArC"

    def inference_edit(self, activations: Activations) -> nn.Module:
        """Return the projection that the corrected model keeps."""
        return self.shift_to(self.cav.clean_score_, activations)


class AClArC(ShiftedCorrection, name="a-clarc"):
    """Fine-tune with every activation shifted to the mean score of artifact images: the artifact then tells nothing."""

    title = "A-ClArC"

    def training_edit(self, activations: Activations) -> nn.Module:
        """Return the shift that adds the artifact to all images."""
        return self.shift_to(self.cav.artifact_score_, activations)
