"""The raw outcome of all tests on one CAV, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hansfree.cavs.class_means import FloatArray
from hansfree.doctor.angles import TARGET, angle_to_truth, images_for, of_both_halves, to_degrees
from hansfree.doctor.diagnosis import Agreement, WrongMark
from hansfree.doctor.held_out import HeldOut
from hansfree.doctor.repeats import Null
from hansfree.doctor.thresholds import level_of


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What all tests on one CAV gave."""

    cav: str
    n_artifact: int
    n_clean: int
    half_cosines: FloatArray
    bootstrap_angles: FloatArray
    held_out: HeldOut
    null: Null
    agreement: Agreement
    overlap: FloatArray | None  # per halving; None without images of other classes
    wrong_marks: tuple[WrongMark, ...]
    is_paired: bool = False  # the same images without and with the artifact

    @property
    def p_value(self) -> float:
        """How often shuffled bits reach this AUC; the true bits count as one shuffle, so that it is never zero."""
        return self.null.p_value(self.held_out.auc)

    @property
    def is_visible(self) -> bool:
        """Whether the artifact shows at all."""
        return level_of("permutation_p", self.p_value) != "poor"

    @property
    def half_angle(self) -> float:
        """Degrees between the directions of two halves."""
        return float(to_degrees(self.half_cosines.mean()))

    @property
    def whole_angle(self) -> float:
        """Degrees between the directions of two sets as large as this one, as the halves let expect."""
        return float(to_degrees(of_both_halves(self.half_cosines.mean())))

    @property
    def expected_error(self) -> float:
        """Degrees to the direction of endless images, as the halves let expect."""
        return float(angle_to_truth(of_both_halves(self.half_cosines.mean())))

    @property
    def error_interval(self) -> tuple[float, float]:
        """The middle 95 % of the expected error over the halvings."""
        return middle(angle_to_truth(of_both_halves(self.half_cosines)))

    @property
    def rarer(self) -> tuple[int, str]:
        """The images whose small number the direction suffers from most: how many, and what they are called."""
        if self.n_clean < self.n_artifact:
            return self.n_clean, "images without the artifact"
        return self.n_artifact, "artifact images"

    @property
    def images_needed(self) -> float | None:
        """Images of the rarer kind for an expected error of `TARGET` degrees; None where nothing can be said."""
        return self.images_for(self.expected_error) if self.is_visible else None

    def images_for(self, angle: float) -> float | None:
        """Return what `images_needed` would be at another expected error."""
        fewer, more = sorted((self.n_artifact, self.n_clean))
        return images_for(TARGET, fewer=fewer, more=more, angle=angle)

    @property
    def is_at_limit(self) -> bool:
        """Whether the expected error is past `TARGET` degrees by less than is written."""
        return TARGET < self.expected_error < TARGET + 0.5


def middle(values: FloatArray) -> tuple[float, float]:
    """Return the ends of the middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
