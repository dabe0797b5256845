"""One-sided P-ClArC: takes the artifact away and never adds it."""

from __future__ import annotations

import numpy as np
from torch import nn

from hansfree.activations import Activations
from hansfree.corrections.clarc import ShiftedCorrection


class OneSidedPClArC(ShiftedCorrection, name="p-clarc-one-sided"):
    """Fine-tune as Vanilla, then shift down to the clean mean score only what lies above it.

    P-ClArC shifts both ways: an image that scores below the mean of the clean ones is moved towards the artifact.
    Along a direction in which the artifact moves images both ways (``scale_`` of 0) no side is the artifact's, and
    this shifts both ways too.
    """

    title = "P-ClArC, one-sided"
    is_default = False

    def inference_edit(self, activations: Activations) -> nn.Module:
        """Return the projection that the corrected model keeps."""
        clean, has_side = self.cav.clean_score_, self.cav.scale_ > 0
        # A gate of zeros over a threshold below zero is always open.
        gate, threshold = np.diag(has_side.astype(float)), np.where(has_side, clean, -1.0)
        return self.shift_to(clean, activations, gate=gate, threshold=threshold)
