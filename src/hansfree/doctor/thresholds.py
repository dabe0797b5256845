"""From which number on the doctor is content, and why: one table for all of its words."""

from __future__ import annotations

from dataclasses import dataclass

from hansfree.doctor.diagnosis import Level

LIMIT = (
    "No test on these images can see one thing: whatever else comes and goes with the artifact within the biased class "
    "(rulers only beside large lesions) is part of the direction, however stable it is."
)
"""What a good verdict does not say."""


@dataclass(frozen=True)
class Threshold:
    """Up to ``good`` the level is good, up to ``fair`` it is fair; from there on poor. More is better if said so."""

    good: float
    fair: float
    reason: str
    more_is_better: bool = False

    def level(self, value: float) -> Level:
        """Return how good ``value`` is."""
        sign = -1 if self.more_is_better else 1
        if sign * value <= sign * self.good:
            return "good"
        return "fair" if sign * value <= sign * self.fair else "poor"


THRESHOLDS = {
    "permutation_p": Threshold(
        0.025,
        0.05,
        "The usual five percent; half of it is the least that the slower solvers' 39 shuffles can show.",
    ),
    "held_out_auc": Threshold(
        0.9,
        0.75,
        "Normal scores with their means 1.8 and 0.95 standard deviations apart. Below that the bit is hardly visible "
        "in this layer, and a correction along the direction has little to hold on to.",
        more_is_better=True,
    ),
    "expected_error": Threshold(
        10.0,
        20.0,
        "Degrees. Of a shift along the true direction, sin(error) remains when the fitted direction is removed: 17 % "
        "of its length at 10 degrees, 34 % at 20.",
    ),
    "split_half_angle": Threshold(
        19.7,
        37.8,
        "Degrees between halves that go with expected errors of 10 and 20: cos = 1 / (1 + 2 tan²(error)).",
    ),
    "bootstrap_angle": Threshold(
        9.9,
        18.9,
        "Degrees that go with expected errors of 10 and 20: tan = sin(error). The noise is in the whole and in the "
        "redrawn samples alike, so that pure noise shows 45 degrees here, not 90.",
    ),
    "class_overlap": Threshold(
        0.3,
        0.6,
        "Absolute cosine. Removing the direction takes its square of the squared distance between the classes: a "
        "tenth at 0.3, a third at 0.6.",
    ),
    "wrong_marks": Threshold(
        0.0,
        0.1,
        "Share of samples: even one is worth a look. Wrong bits shrink the difference of the means by about their "
        "share; at random they do not turn it.",
    ),
}
"""Calibrated on Gaussian samples with a known direction: docs/decisions/0018-the-cav-doctor.md."""


def level_of(name: str, value: float) -> Level:
    """Return how good the finding ``name`` is at ``value``."""
    return THRESHOLDS[name].level(value)
