"""How heads are fine-tuned: options, class weights and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor, nn

from hansfree.errors import OptionError, check_choice
from hansfree.models.surgery import check_device


def balanced_weights(groups: np.ndarray) -> np.ndarray:
    """Return what each image counts, 1 on average, so that all groups that have images count the same.

    Example:
        >>> balanced_weights(np.array([0, 0, 0, 1])).round(2).tolist()
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


Optimizer = Literal["sgd", "adam", "converged"]


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How a head is fine-tuned; the defaults are the paper's recipe (App. A.3).

    ``optimizer="converged"`` is the minimum itself, with L2 of weight ``anchor`` towards the model's own head; rate,
    epochs, batches and seed are then not used. ``balanced`` lets every class count the same in the loss. ``stable``
    shortens steps of SGD that would diverge, as `hansfree run` does.
    """

    optimizer: Optimizer = "sgd"
    learning_rate: float = 1e-4
    epochs: int = 10
    batch_size: int = 32
    seed: int = 0
    device: str = "cpu"
    anchor: float = 1e-2
    balanced: bool = False
    stable: bool = False

    def __post_init__(self) -> None:
        """Raise for values that cannot train."""
        check_choice("optimizer", self.optimizer, Optimizer)
        check_device(self.device)
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        if not self.anchor > 0:
            raise OptionError(f"anchor is {self.anchor}; it must be above 0, or the minimum may lie at infinity.")
        if self.epochs < 1 or self.batch_size < 1 or self.seed < 0:
            raise OptionError(
                f"epochs={self.epochs}, batch_size={self.batch_size}, seed={self.seed}: at least 1, 1 and 0 are needed."
            )
