"""What each image counts in the loss: all the same, or so that every group does."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn


def even_weights(groups: np.ndarray) -> np.ndarray:
    """Return what each image counts, 1 on average, so that all groups that have images count the same.

    Example:
        >>> even_weights(np.array([0, 0, 0, 1])).round(2).tolist()
        [0.67, 0.67, 0.67, 2.0]
    """
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights: np.ndarray = len(groups) / (len(counts) * counts[place])
    return weights


def mean_loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Return the cross-entropy; with ``weights`` as a mean of what each image counts."""
    if weights is None:
        return nn.functional.cross_entropy(logits, labels)
    return (nn.functional.cross_entropy(logits, labels, reduction="none") * weights).mean()
