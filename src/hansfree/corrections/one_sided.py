"""One-sided P-ClArC: takes the artifact away and never adds it."""

from __future__ import annotations

import numpy as np
from torch import nn

from hansfree.activations import Activations
from hansfree.corrections.clarc import ShiftedCorrection


class OneSidedPClArC(ShiftedCorrection, name="p-clarc-one-sided"):
    """Fine-tune as Vanilla, then shift down to the clean mean score only what lies above it.

    P-ClArC shifts both ways: an image that scores below the mean of the clean ones is moved towards the artifact.
    """

    title = "P-ClArC, one-sided"
    is_default = False

    def inference_edit(self, activations: Activations) -> nn.Module:
        """Return the projection that the corrected model keeps."""
        clean = self.cav.clean_score_
        return self.shift_to(clean, activations, gate=np.eye(len(clean)), threshold=clean)
