"""Sensitivity along the bias direction (TCAV): second evidence, as the direction is the one that was trained on."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.base import MIN_GROUP, Metric, Score
from hansfree.metrics.evidence import Evidence, Floats, Integers


class DerivativeMetric(Metric):
    """A metric of the biased class's derivative along the direction, over the images with the artifact.

    Where those are few, the evidence may hold the derivatives of all images: what the artifact would do can be asked of
    any. So its being known does not depend on the labels, as with other metrics.
    """

    needs: ClassVar[tuple[str, ...]] = ("derivatives",)

    def derivatives(self, evidence: Evidence) -> Floats:
        """Return the derivatives; one that is not finite has no sign, and leaving it out would flatter the model."""
        if evidence.derivatives is None:
            raise UndefinedMetricError(f"{self.name} needs derivatives, which the evidence does not hold.")
        if not evidence.is_paired and evidence.derivatives.size < MIN_GROUP:
            n = evidence.derivatives.size
            raise UndefinedMetricError(
                f"{self.name} cannot be known: {MIN_GROUP} images are needed, and there are {n}."
            )
        n_broken = np.sum(~np.isfinite(evidence.derivatives))
        if n_broken:
            raise UndefinedMetricError(
                f"{self.name} is undefined: {n_broken} of {evidence.derivatives.size} derivatives are not finite."
            )
        return evidence.derivatives

    def position_signs(self, evidence: Evidence) -> Integers:
        """Return the counts of positive, negative and zero positions per image, with no position left out."""
        self.derivatives(evidence)  # a NaN at one position is a NaN in the sum
        if evidence.position_signs is None:
            raise UndefinedMetricError(f"{self.name} needs position_signs, which the evidence does not hold.")
        if (evidence.position_signs.sum(axis=1) != evidence.n_positions).any():
            raise UndefinedMetricError(f"{self.name} is undefined: some positions have no sign.")
        return evidence.position_signs


class TCAV(DerivativeMetric, name="tcav"):
    """Share of images whose derivative, summed over positions, is positive (the paper's definition of TCAV)."""

    ideal = 0.5
    label = "TCAV"
    description = "Share of images with the artifact whose derivative along the direction is positive; 0.5 is chance."

    def compute(self, evidence: Evidence) -> Score:
        """Count the positive derivatives; zero is not positive."""
        return self.proportion(self.derivatives(evidence) > 0)


class TCAVPositions(DerivativeMetric, name="tcav_positions"):
    """Share of positive among non-zero derivatives over all positions, as in the paper's tables.

    The positions of one map go together, so the standard error is over images (ratio of two sums, delta method):
    taking positions as independent makes it up to sqrt(positions) times too small.
    """

    ideal = 0.5
    needs = ("derivatives", "position_signs")
    label = "TCAV, positions"
    description = "Share of positive among the non-zero derivatives over all positions; standard error over images."

    def compute(self, evidence: Evidence) -> Score:
        """Divide the sums; an image's residual is what it adds beyond the common share."""
        signs = self.position_signs(evidence)
        n, positive, signed = len(signs), signs[:, 0], signs[:, 0] + signs[:, 1]
        total = int(signed.sum())
        if n < 2 or total == 0:
            raise UndefinedMetricError(
                f"{self.name} needs 2 images and a derivative that is not zero; {n} image(s) have {total} of them."
            )
        share = positive.sum() / total
        residuals = positive - share * signed
        return self.score(share, np.sqrt(n / (n - 1) * np.sum(residuals**2)) / total, n)


class TCAVZeroShare(DerivativeMetric, name="tcav_zero_share"):
    """Share of derivatives that are exactly zero: over positions where their signs are known, else over images.

    It says how much TCAV leaves unsaid: behind a ReLU that is off, the derivative is zero whatever the model does.
    """

    ideal = 0.0
    label = "TCAV, zero share"
    description = "Share of derivatives that are exactly zero and so tell TCAV nothing."

    def compute(self, evidence: Evidence) -> Score:
        """Average over images; each is one sample, however many positions it has."""
        if evidence.position_signs is None:
            return self.proportion(self.derivatives(evidence) == 0)
        return self.mean(self.position_signs(evidence)[:, 2] / evidence.n_positions)


class TCAVSensitivity(DerivativeMetric, name="tcav_sensitivity"):
    """Mean size of the derivative along the unit direction, the gradient averaged over positions (paper, appendix)."""

    ideal = 0.0
    label = "TCAV sensitivity"
    description = "Mean absolute derivative of the biased class's logit along the unit direction, mean over positions."

    def compute(self, evidence: Evidence) -> Score:
        """Divide the position-summed derivative by the number of positions, and average its size over images."""
        return self.mean(np.abs(self.derivatives(evidence)) / evidence.n_positions)
