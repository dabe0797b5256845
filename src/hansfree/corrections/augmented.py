"""Counterfactual augmentation: the same images without and with the artifact have the same label."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from hansfree.activations import Activations, Features
from hansfree.corrections.base import Correction
from hansfree.errors import DataError
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


def find_pairs(activations: Activations) -> np.ndarray:
    """Return the rows of each image without and with the artifact, ``(pairs, 2)``."""
    bits = activations.has_artifact
    if bits is None:
        raise DataError("Augmentation needs to know which images carry the artifact.")
    twins = {int(activations.ids[row]): int(row) for row in np.flatnonzero(bits)}
    pairs = np.array(
        [(row, twins[image]) for row in np.flatnonzero(~bits) if (image := int(activations.ids[row])) in twins],
        dtype=np.int64,
    ).reshape(-1, 2)
    if not len(pairs):
        raise DataError(
            "Augmentation needs every image twice, without and with the artifact put in, under one id. Collect the "
            "activations of both sets together (torch.utils.data.ConcatDataset)."
        )
    if not np.array_equal(*np.asarray(activations.labels)[pairs].T):
        raise DataError("Some images have one label without the artifact and another with it put in.")
    return pairs
