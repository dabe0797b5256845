"""What one layer knows about the artifact, in four numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hansfree.cavs import SignalCAV
from hansfree.doctor import Level
from hansfree.doctor.angles import angle_to_truth, of_both_halves
from hansfree.doctor.repeats import Repeats
from hansfree.doctor.solvers import overlap_with_class
from hansfree.doctor.thresholds import level_of
from hansfree.progress import silent

RULE = (
    "Layers are ordered by the doctor's worst level among held-out AUC, expected error and overlap with the class, "
    "poor where the output hardly reacts; within a level by how much it reacts."
)
_LEAST_REACTION = 0.1  # of the log-odds' spread; below, there is next to nothing that a correction could take away
_LEVELS: tuple[Level, ...] = ("good", "fair", "poor")


@dataclass(frozen=True, kw_only=True)
class LayerScore:
    """What the signal-CAV at one layer is worth, from a few training images."""

    layer: str
    parameters_after: int
    shape: tuple[int, ...]  # of the output for one image
    auc: float  # of held-out images of the biased class, without and with the artifact
    auc_stderr: float
    error: float  # degrees to the direction of endless images, as halves of the images let expect
    reaction: float  # mean move of the log-odds by the artifact's mean shift, in standard deviations of the log-odds
    overlap: float | None  # cosine with the class's direction; None without images of other classes

    @property
    def level(self) -> Level:
        """The doctor's worst level; poor too where the output hardly reacts."""
        if self.reaction < _LEAST_REACTION:
            return "poor"
        levels = [level_of("held_out_auc", self.auc), level_of("expected_error", self.error)]
        if self.overlap is not None:
            levels.append(level_of("class_overlap", abs(self.overlap)))
        return max(levels, key=_LEVELS.index)

    @property
    def rank(self) -> tuple[int, float]:
        """What layers are ordered by, the best first."""
        return _LEVELS.index(self.level), -self.reaction

    @property
    def sentence(self) -> str:
        """What the numbers say."""
        overlap = "" if self.overlap is None else f", its cosine with the class is {self.overlap:.2f}"
        return (
            f"{self.level}: the artifact is told apart with an AUC of {self.auc:.2f}, the direction is known to about "
            f"{self.error:.0f} degrees{overlap}, and the artifact's shift along it moves the log-odds by "
            f"{self.reaction:.2f} of their spread"
        )


@dataclass(frozen=True)
class Direction:
    """A layer's direction, and what the doctor measured of it."""

    shift: np.ndarray  # the artifact's mean shift along it, averaged over the positions
    auc: float
    auc_stderr: float
    error: float
    overlap: float | None


def measure_direction(
    inside: np.ndarray, averaged: np.ndarray, has_artifact: np.ndarray, others: np.ndarray | None, *, seed: int
) -> Direction:
    """Fit the signal-CAV and ask the doctor's questions that need no further fit of other solvers.

    Args:
        inside: Pooled activations (n, channels) of the biased class: what the CAV is fitted on.
        averaged: The same images, averaged over the positions. Maxima say where the artifact points, but added at every
            position they would make an early layer, with its many positions, react most; averages compare.
        others: Pooled activations of clean images of other classes, where there are any.
    """
    samples = inside.astype(np.float64)
    center = samples.mean(axis=0)
    cav = SignalCAV().fit(samples - center, has_artifact)
    repeats = Repeats(cav, samples - center, has_artifact, seed=seed, progress=silent)
    halves, directions = repeats.halves()
    held_out = repeats.held_out()
    cosines = np.sum(directions[:, 0] * directions[:, 1], axis=1)
    overlap = None
    if others is not None:
        overlap = float(overlap_with_class(samples - center, ~has_artifact, others - center, halves, directions).mean())
    scores = averaged.astype(np.float64) @ cav.direction_
    size = scores[has_artifact].mean() - scores[~has_artifact].mean()
    return Direction(
        shift=size * cav.direction_,
        auc=held_out.auc,
        auc_stderr=held_out.stderr,
        error=float(angle_to_truth(of_both_halves(cosines.mean()))),
        overlap=overlap,
    )
