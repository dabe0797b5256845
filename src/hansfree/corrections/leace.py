"""LEACE, least-squares concept erasure: the smallest affine change that hides the artifact (Belrose et al., 2023)."""

from __future__ import annotations

import numpy as np
from sklearn.covariance import ledoit_wolf
from torch import Tensor, nn

from hansfree.activations import Activations
from hansfree.corrections.base import Correction
from hansfree.corrections.projection import Projection
from hansfree.errors import DataError
from hansfree.splitting import Split
from hansfree.training import HeadBatch, WeightedHead


class LEACE(Correction, name="leace"):
    """Fine-tune as Vanilla, then erase from the pooled activation what a linear classifier could tell the artifact by.

    The artifact is tied to a class, and to erase all that goes with it would erase the class. So both are taken
    relative to the mean of each image's class. The covariance is shrunk (Ledoit and Wolf), as layers have about as
    many channels as there are images; that costs a little of "least", and nothing of the erasure.
    """

    title = "LEACE"
    is_default = False

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits; the erasure does the work."""
        return head(*batch.values), None

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse data in which no class has images both without and with the artifact."""
        super().check(cut, activations)
        within_classes(activations)

    def inference_edit(self, activations: Activations) -> nn.Module:
        """Return the erasure that the corrected model keeps."""
        features, bit = within_classes(activations)
        covariance, _ = ledoit_wolf(features, assume_centered=True)
        direction, readout = least_erasure(features.T @ bit, covariance)
        mean = activations.pooled.mean(0, dtype=np.float64)  # which the erasure leaves where it is
        return Projection(direction[None], readout[None] @ mean, pooling=activations.pooling, readout=readout[None])


def least_erasure(cross: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``d`` and ``r`` of ``x - d r.(x - mean)``, after which ``x`` and a bit have no covariance (Theorem 4.3).

    Of all affine maps that achieve this, it changes ``x`` least in mean square: ``d`` is the covariance with the bit
    itself, and ``r`` what least squares would predict the bit from, of the length that makes the map a projection.

    Args:
        cross: Covariance of ``x`` and the bit, ``(channels,)``, of any length.
        covariance: Of ``x``.
    """
    direction = cross / np.linalg.norm(cross)
    readout: np.ndarray = np.linalg.pinv(covariance, hermitian=True) @ direction
    return direction, readout / (readout @ direction)


def within_classes(activations: Activations) -> tuple[np.ndarray, np.ndarray]:
    """Return pooled activations and artifact bits minus the mean of each image's class, in float64."""
    if activations.has_artifact is None:
        raise DataError("LEACE needs to know which training images carry the artifact.")
    features = activations.pooled.astype(np.float64)
    bit = np.asarray(activations.has_artifact, dtype=np.float64)
    for label in np.unique(activations.labels):
        inside = activations.labels == label
        features[inside] -= features[inside].mean(0)
        bit[inside] -= bit[inside].mean()
    if not np.linalg.norm(features.T @ bit) > 0:
        raise DataError("LEACE needs a class with images both without and with the artifact, that differ at the layer.")
    return features, bit
