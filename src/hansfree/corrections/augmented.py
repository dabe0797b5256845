"""Counterfactual augmentation: the same images without and with the artifact have the same label."""

from __future__ import annotations

from torch import Tensor

from hansfree.activations import Activations, Features, find_pairs
from hansfree.corrections.base import Correction
from hansfree.splitting import Split
from hansfree.training import HeadBatch, WeightedHead


class Augmented(Correction, name="augmented"):
    """Fine-tune on every image twice, without the artifact and with it put in, under the same label.

    Its activations hold both, told apart by ``has_artifact`` and joined by ``ids``: those of a ``ConcatDataset`` of the
    two sets. Images with the artifact that have no twin without it are left out: they would tie it to a class again.
    """

    title = "Augmented"
    is_default = False
    uses_pairs = True

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits; the images do the work."""
        return head(*batch.values), None

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse images that are not there in both forms, or under two labels."""
        super().check(cut, activations)
        find_pairs(activations)

    def features(self, cut: Split, activations: Activations) -> Features:
        """Return the head's inputs of the pairs alone."""
        return super().features(cut, activations).part(find_pairs(activations).ravel())

    def remark(self, activations: Activations, *, clean: Activations, biased: Activations | None) -> str:
        """Tell how many pairs there were."""
        return f"It was trained on {len(find_pairs(activations)):,} images, each without and with the artifact."
