"""What the artifact does to a model: flips, change of probability, TCAV, relevance."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hansfree._internal.statistics import Floats, Integers
from hansfree.errors import UndefinedMetricError
from hansfree.metrics.base import MIN_GROUP, NO_PREDICTION, Evidence, Metric, NotAvailable, Score, predict_classes


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
        probabilities = []
        for logits in (evidence.logits_clean, evidence.logits_biased):
            if not np.isfinite(logits.max(axis=1)).all():
                raise UndefinedMetricError(f"{self.name} is undefined: some logits are NaN or infinite.")
            probabilities.append(np.exp(logits[:, evidence.biased_class] - np.logaddexp.reduce(logits, axis=1)))
        before, after = probabilities
        return self.mean(after - before)


def is_flipped(before: Integers, after: Integers) -> NDArray[np.bool_]:
    """Return per image whether the predicted class changes; without a prediction it counts as changed."""
    return np.asarray((before != after) | (before == NO_PREDICTION), dtype=np.bool_)


def _require_pairs(name: str, evidence: Evidence) -> None:
    if not evidence.is_paired:
        raise UndefinedMetricError(f"{name} needs the same images without and with the artifact; these are others.")


class DerivativeMetric(Metric):
    """A metric of the biased class's derivative along the direction, which any image can have; see `Evidence`."""

    needs: ClassVar[tuple[str, ...]] = ("derivatives",)

    def derivatives(self, evidence: Evidence) -> Floats:
        """Return the derivatives; one that is not finite has no sign, and leaving it out would flatter the model."""
        derivatives = self.required(evidence, "derivatives")
        n, n_broken = derivatives.size, np.sum(~np.isfinite(derivatives))
        if not evidence.is_paired and n < MIN_GROUP:
            raise UndefinedMetricError(
                f"{self.name} is not available: {MIN_GROUP} images are needed, and there are {n}."
            )
        if n_broken:
            raise UndefinedMetricError(f"{self.name} is undefined: {n_broken} of {n} derivatives are not finite.")
        return derivatives

    def position_signs(self, evidence: Evidence) -> Integers:
        """Return the counts of positive, negative and zero positions per image, with no position left out."""
        self.derivatives(evidence)  # a NaN at one position is a NaN in the sum
        signs = self.required(evidence, "position_signs")
        if (signs.sum(axis=1) != evidence.n_positions).any():
            raise UndefinedMetricError(f"{self.name} is undefined: some positions have no sign.")
        return signs


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
    """Share of derivatives that are exactly zero (such as behind a ReLU that is off): over positions, else images."""

    ideal = 0.0
    label = "TCAV, zero share"
    description = "Share of derivatives that are exactly zero and do not count in TCAV."

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


class TCAVSensitivityPositions(DerivativeMetric, name="tcav_sensitivity_positions"):
    """Mean size of the derivatives at single positions, as in the paper's tables: theirs do not cancel."""

    ideal = 0.0
    needs = ("derivatives", "position_sizes")
    label = "TCAV sensitivity, positions"
    description = "Mean absolute derivative of the biased class's logit along the unit direction at single positions."

    def compute(self, evidence: Evidence) -> Score:
        """Average the means of the images, which have as many positions each."""
        self.derivatives(evidence)  # a NaN at one position is a NaN in the sum
        return self.mean(self.required(evidence, "position_sizes"))


class ArtifactRelevance(Metric, name="artifact_relevance"):
    """Mean share of the absolute relevance that lies on the artifact's mask (the paper's R_bias).

    An image whose heatmap is zero everywhere has no such share (NaN) and is left out; ``n`` says how many count.
    """

    ideal = 0.0
    needs = ("relevance",)
    label = "Artifact relevance"
    description = "Mean share of the heatmap's absolute relevance that lies on the artifact's mask."

    def compute(self, evidence: Evidence) -> Score:
        """Average over the images that have a share."""
        relevance = self.required(evidence, "relevance")
        self.check_available(evidence)
        return self.mean(relevance[~np.isnan(relevance)])

    def unavailable(self, labels: Integers, labels_biased: Integers | None) -> list[NotAvailable]:
        """Return itself where the images with the artifact are others, and few."""
        return [] if labels_biased is None else self.too_few_images(len(labels_biased))
