"""R-ClArC: react only where the artifact is detected (Bareeva et al., 2024)."""

from __future__ import annotations

import numpy as np
import torch

from hansfree.activations import Activations
from hansfree.cavs import CAV
from hansfree.corrections.clarc import ShiftedCorrection
from hansfree.corrections.projection import Projection
from hansfree.errors import DataError, OptionError
from hansfree.splitting import Split
from hansfree.training import FineTuning

_MARGIN = 1e-3  # of the deviation of the clean images' scores


class RClArC(ShiftedCorrection, name="r-clarc"):
    """Fine-tune as Vanilla, then shift to the mean score of clean images only where the artifact is detected.

    The CAV detects: its score has to exceed a threshold that ``false_fire_rate`` of the clean training images exceed
    at most. Images in which nothing is detected are answered as by the fine-tuned model.

    Args:
        false_fire_rate: Share of clean training images that may be shifted all the same, above 0 and below 1.
    """

    title = "R-ClArC"
    is_default = False

    def __init__(
        self, cav: CAV, *, false_fire_rate: float = 0.05, strength: float = 1.0, tuning: FineTuning | None = None
    ) -> None:
        super().__init__(cav, strength=strength, tuning=tuning)
        if not 0 < false_fire_rate < 1:
            raise OptionError(f"false_fire_rate is {false_fire_rate}; it must be above 0 and below 1.")
        self.false_fire_rate = false_fire_rate

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse data without clean images to set the gate by."""
        super().check(cut, activations)
        _clean(activations)

    def inference_edit(self, activations: Activations) -> Projection:
        """Return the gated projection that the corrected model keeps."""
        k, towards = len(self.cav.scale_), self.cav.combination_
        scores = self.cav.score_along(_clean(activations)) @ towards
        # One of the scores, so that no more than the stated share lies above it; that image itself must not fire by
        # a rounding, hence a little more.
        threshold = np.quantile(scores, 1 - self.false_fire_rate, method="higher") + _MARGIN * np.std(scores)
        gate = np.tile(towards, (k, 1))  # all directions together, or none
        return self.shift_to(self.cav.clean_score_, activations, gate=gate, threshold=np.full(k, threshold))

    def fires(self, activations: Activations, images: Activations) -> np.ndarray:
        """Say which images the gate detects the artifact in.

        Args:
            activations: The training images, which set the gate.
            images: Any images of the same layer.
        """
        fired = self.inference_edit(activations).fires(torch.from_numpy(np.array(images.pooled)).float())
        return fired[:, 0].numpy()

    def remark(self, activations: Activations, *, clean: Activations, biased: Activations | None) -> str:
        """Tell how often the gate fires on held-out images."""
        held_out = {"without": clean} if biased is None else {"without": clean, "with": biased}
        told = [
            f"{100 * self.fires(activations, images).mean():.1f} % of {len(images):,} test images {word} the artifact"
            for word, images in held_out.items()
        ]
        rate = f"{100 * self.false_fire_rate:g} % of the clean training images"
        return f"The gate fires on {' and '.join(told)}; it was set for {rate}."


def _clean(activations: Activations) -> np.ndarray:
    bits = activations.has_artifact
    if bits is None or np.all(bits):
        raise DataError("R-ClArC sets its gate by training images that are known to be without the artifact.")
    clean: np.ndarray = activations.pooled[~np.asarray(bits)]
    return clean
