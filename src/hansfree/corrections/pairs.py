"""Corrections that learn from pairs: images without the artifact, and the same ones with it put in."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from hansfree.activations import Activations, Features, find_pairs
from hansfree.corrections.base import Correction
from hansfree.corrections.training import HeadBatch, WeightedHead
from hansfree.models.surgery import Split


class PairCorrection(Correction):
    """A correction whose activations hold images without and with the artifact, those of a ``ConcatDataset`` of both.

    They are told apart by ``has_artifact`` and joined by ``ids``.
    """

    is_default = False
    uses_pairs = True

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse images that are not there in both forms, or under two labels."""
        super().check(cut, activations)
        find_pairs(activations)

    def remark(self, activations: Activations, *, clean: Activations, biased: Activations | None) -> str:
        """Tell how many pairs there were."""
        return f"It was trained on {len(find_pairs(activations)):,} images, each without and with the artifact."


class LogitPairing(PairCorrection, name="logit-pairing"):
    """Fine-tune on all images, with a penalty on what the artifact does to the logits of each that has a twin.

    RR-ClArC bars directions that all images share. But an artifact changes every image in its own way, and where it
    can be put in that change is known: the penalty is the squared distance between the logits of the two twins
    (counterfactual logit pairing; Garg et al., 2019). Images with the artifact that have no twin can stay, as the
    penalty keeps it from telling their class.
    """

    title = "Logit pairing"
    has_strength = True
    grid = tuple(float(f"{digit}e{power}") for power in range(-5, 2) for digit in (1, 2, 5))
    paper_grid = grid  # the paper has no such method, so there are no units of its own

    def features(self, cut: Split, activations: Activations) -> Features:
        """Return the head's inputs, and as tangent the whole way to the twin; none where there is no twin."""
        found = super().features(cut, activations)
        clean, biased = find_pairs(activations).T
        ways = tuple(np.zeros((len(values), 1, *values.shape[1:]), dtype=values.dtype) for values in found.values)
        for way, values in zip(ways, found.values):
            way[clean, 0] = values[biased] - values[clean]
            way[biased] = -way[clean]
        return Features(found.values, ways, found.labels, found.n_positions)

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and how far those of the twin are from them."""
        logits, moved = head.take_steps(batch.values, batch.tangents)
        return logits, (moved - logits).square().sum((0, 2))

    def squared_outputs(self, logits: Tensor) -> Tensor:
        """Return the logits: all of them count."""
        return logits

    def remark(self, activations: Activations, *, clean: Activations, biased: Activations | None) -> str:
        """Tell how many more had no twin."""
        told = super().remark(activations, clean=clean, biased=biased)
        alone = len(activations) - 2 * len(find_pairs(activations))
        return f"{told[:-1]}, and on {alone:,} without a twin." if alone else told


class Augmented(PairCorrection, name="augmented"):
    """Fine-tune on every image twice, without the artifact and with it put in, under the same label.

    Images with the artifact that have no twin without it are left out: they would tie it to a class again.
    """

    title = "Augmented"

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits; the images do the work."""
        return head(*batch.values), None

    def features(self, cut: Split, activations: Activations) -> Features:
        """Return the head's inputs of the pairs alone."""
        return super().features(cut, activations).part(find_pairs(activations).ravel())
