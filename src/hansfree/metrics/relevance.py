"""How much of a heatmap lies on the artifact."""

from __future__ import annotations

import numpy as np

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.base import Metric, Score, Unknown, few_images
from hansfree.metrics.evidence import Evidence, Integers


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
        if evidence.relevance is None:
            raise UndefinedMetricError(f"{self.name} needs relevance, which the evidence does not hold.")
        self.check_known(evidence)
        return self.mean(evidence.relevance[~np.isnan(evidence.relevance)])

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return itself where the images with the artifact are others, and few."""
        return [] if labels_biased is None else few_images(self.name, len(labels_biased))
