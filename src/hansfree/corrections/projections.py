"""Projections after the layer: P-ClArC, A-ClArC, one-sided, R-ClArC and LEACE."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor, nn

from hansfree.activations import Activations, FeatureSpec, Pooling, at_every_position, pool
from hansfree.cavs import CAV
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.latent import CAVCorrection, LatentCorrection
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError, OptionError
from hansfree.models.surgery import Cut
from hansfree.reasons import Reason, ReasonCode

Numbers: TypeAlias = np.ndarray | Tensor


class Projection(nn.Module):
    """Shift activations along the bias directions, alike at every position, to a pooled score: ``a + gamma(x) h``.

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
        for name, values in given.items():  # None is in no state_dict: the keys show what a projection does
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
        """Return along which directions pooled activations are moved, ``(n, k)``."""
        scores = self.scores(pooled)
        if self.gate is None or self.threshold is None:
            return torch.ones_like(scores, dtype=torch.bool)
        return scores @ self.gate.T > self.threshold


class PClArC(CAVCorrection, name="p-clarc"):
    """Fine-tune as Vanilla, then shift every activation to the mean score of clean images, in the model itself."""

    rank = 2
    info = MethodInfo(title="P-ClArC", needs=frozenset({Need.CAV}), in_default_run=True, removes_direction=True)

    def edit(self, activations: Activations) -> nn.Module:
        """Return the projection that the corrected model keeps."""
        return Projection(self.cav.directions_, self.cav.clean_score_, pooling=activations.pooling)


class AClArC(CAVCorrection, name="a-clarc"):
    """Fine-tune with every activation shifted to the mean score of artifact images, so that it predicts no class."""

    rank = 3
    info = MethodInfo(title="A-ClArC", needs=frozenset({Need.CAV}), in_default_run=True)

    def features(self, activations: Activations) -> FeatureSpec:
        """Return features with the artifact's score in all images."""
        edit = Projection(self.cav.directions_, self.cav.artifact_score_, pooling=activations.pooling)
        return FeatureSpec(edit=edit)


class OneSidedPClArC(CAVCorrection, name="p-clarc-one-sided"):
    """Fine-tune as Vanilla, then shift down to the clean mean score only what lies above it.

    Along a direction in which the artifact moves images both ways (``scale_`` of 0) it shifts both ways, as P-ClArC.
    """

    rank = 6
    info = MethodInfo(title="P-ClArC, one-sided", needs=frozenset({Need.CAV}), removes_direction=True)

    def edit(self, activations: Activations) -> nn.Module:
        """Return the projection that the corrected model keeps."""
        clean, has_side = self.cav.clean_score_, self.cav.scale_ > 0
        # A gate of zeros over a threshold below zero is always open.
        given = {"gate": np.diag(has_side.astype(float)), "threshold": np.where(has_side, clean, -1.0)}
        return Projection(self.cav.directions_, clean, pooling=activations.pooling, **given)


_MARGIN = 1e-3  # of the deviation of the clean images' scores


class RClArC(CAVCorrection, name="r-clarc"):
    """Fine-tune as Vanilla, then shift to the mean score of clean images only where the CAV detects the artifact.

    Args:
        false_fire_rate: Share of clean training images that may exceed the CAV's threshold, above 0 and below 1.
    """

    rank = 7
    info = MethodInfo(title="R-ClArC", needs=frozenset({Need.CAV, Need.ARTIFACT_LABELS}), removes_direction=True)

    def __init__(
        self, cav: CAV, *, false_fire_rate: float = 0.05, strength: float = 1.0, tuning: FineTuning | None = None
    ) -> None:
        super().__init__(cav, strength=strength, tuning=tuning)
        if not 0 < false_fire_rate < 1:
            raise OptionError(f"false_fire_rate is {false_fire_rate}; it must be above 0 and below 1.")
        self.false_fire_rate = false_fire_rate

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for data without clean images to set the gate by."""
        super().check(cut, activations)
        _clean(activations)

    def edit(self, activations: Activations) -> Projection:
        """Return the gated projection that the corrected model keeps."""
        k, towards = len(self.cav.scale_), self.cav.combination_
        scores = self.cav.score_along(_clean(activations)) @ towards
        # One of the scores, and a margin so that this image itself does not fire by rounding.
        threshold = np.quantile(scores, 1 - self.false_fire_rate, method="higher") + _MARGIN * np.std(scores)
        given = {"gate": np.tile(towards, (k, 1)), "threshold": np.full(k, threshold)}  # all directions, or none
        return Projection(self.cav.directions_, self.cav.clean_score_, pooling=activations.pooling, **given)

    def fires(self, activations: Activations, images: Activations) -> np.ndarray:
        """Return in which images the gate, set by the training activations, detects the artifact."""
        fired = self.edit(activations).fires(torch.from_numpy(np.array(images.pooled)).float())
        return fired[:, 0].numpy()

    def details(self, train: Activations, *, clean: Activations, biased: Activations | None) -> tuple[Reason, ...]:
        """Return how often the gate fires on held-out images."""
        held_out = {"without": clean} if biased is None else {"without": clean, "with": biased}
        rates = {word: (float(self.fires(train, images).mean()), len(images)) for word, images in held_out.items()}
        return (Reason(ReasonCode.GATE_RATE, {"intended": self.false_fire_rate, "rates": rates}),)


def _clean(activations: Activations) -> np.ndarray:
    bits = activations.has_artifact
    if bits is None or np.all(bits):
        raise DataError("R-ClArC sets its gate by training images that are known to be without the artifact.")
    clean: np.ndarray = activations.pooled[~np.asarray(bits)]
    return clean


class LEACE(LatentCorrection, name="leace"):
    """Fine-tune as Vanilla, then erase from the pooled activation what a linear classifier detects the artifact by.

    Both are taken relative to the mean of each image's class, or the class would be erased too. The covariance is
    shrunk (Ledoit and Wolf), as layers have about as many channels as there are images.
    """

    rank = 8
    info = MethodInfo(title="LEACE", needs=frozenset({Need.ARTIFACT_LABELS}), removes_direction=True)

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for data in which no class has images both without and with the artifact."""
        super().check(cut, activations)
        within_classes(activations)

    def edit(self, activations: Activations) -> nn.Module:
        """Return the erasure that the corrected model keeps."""
        features, bit = within_classes(activations)
        covariance, _ = ledoit_wolf(features, assume_centered=True)
        direction, readout = least_erasure(features.T @ bit, covariance)
        mean = activations.pooled.mean(0, dtype=np.float64)  # which the erasure leaves where it is
        return Projection(direction[None], readout[None] @ mean, pooling=activations.pooling, readout=readout[None])


def least_erasure(cross: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``d`` and ``r`` of ``x - d r.(x - mean)``, after which ``x`` and a bit have no covariance (Theorem 4.3).

    Of all such affine maps it changes ``x`` least in mean square.

    Args:
        cross: Covariance of ``x`` and the bit, ``(channels,)``, of any length.
    """
    direction = cross / np.linalg.norm(cross)
    readout: np.ndarray = np.linalg.pinv(covariance, hermitian=True) @ direction
    return direction, readout / (readout @ direction)


def within_classes(activations: Activations) -> tuple[np.ndarray, np.ndarray]:
    """Return pooled activations and artifact labels minus the mean of each image's class, in float64."""
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
