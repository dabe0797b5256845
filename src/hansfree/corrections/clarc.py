"""The rivals that shift activations along the CAV: P-ClArC for good, A-ClArC in training (Anders et al., 2022)."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from hansfree.activations import Activations
from hansfree.corrections.base import CAVCorrection
from hansfree.corrections.projection import Projection
from hansfree.training import HeadBatch, WeightedHead


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
