"""What inserting the artifact does to the model's answers: the first evidence, as it needs no direction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.base import Metric, Score
from hansfree.metrics.evidence import NO_PREDICTION, Evidence, Floats, Integers, predict_classes


class FlipRate(Metric, name="flip_rate"):
    """Share of images whose prediction changes when the artifact is inserted.

    An image without prediction, before or after, counts as changed: a broken model must not look immune.
    """

    ideal = 0.0
    label = "Flip rate"
    description = "Share of images whose predicted class changes when the artifact is inserted."

    def compute(self, evidence: Evidence) -> Score:
        """Compare the predictions image by image."""
        _require_pairs(self.name, evidence)
        before, after = predict_classes(evidence.logits_clean), predict_classes(evidence.logits_biased)
        return self.proportion(is_flipped(before, after))


class ProbabilityChange(Metric, name="probability_change"):
    """Mean change of the biased class's softmax probability when the artifact is inserted, paired by image."""

    ideal = 0.0
    label = "Probability change"
    description = "Mean change of the biased class's probability when the artifact is inserted."

    def compute(self, evidence: Evidence) -> Score:
        """Subtract before from after image by image: the pairing takes out how images differ."""
        _require_pairs(self.name, evidence)
        before, after = (
            self._probability(logits, evidence.biased_class)
            for logits in (evidence.logits_clean, evidence.logits_biased)
        )
        return self.mean(after - before)

    def _probability(self, logits: Floats, label: int) -> Floats:
        if not np.isfinite(logits.max(axis=1)).all():
            raise UndefinedMetricError(f"{self.name} is undefined: some logits are NaN or infinite.")
        probability: Floats = np.exp(logits[:, label] - np.logaddexp.reduce(logits, axis=1))
        return probability


def is_flipped(before: Integers, after: Integers) -> NDArray[np.bool_]:
    """Return per image whether the predicted class changes; without a prediction it counts as changed."""
    return np.asarray((before != after) | (before == NO_PREDICTION), dtype=np.bool_)


def _require_pairs(name: str, evidence: Evidence) -> None:
    if not evidence.is_paired:
        raise UndefinedMetricError(f"{name} needs the same images without and with the artifact; these are others.")
