"""How heads are fine-tuned: options, class weights, and the paper's recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor, nn

from hansfree.corrections.training.model_loop import Pretraining
from hansfree.errors import OptionError, check_choice
from hansfree.models import architecture_named
from hansfree.models.surgery import check_device
from hansfree.studies.study import Study


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


Optimizer = Literal["sgd", "adam", "converged"]

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How a head is fine-tuned; the defaults are the paper's recipe (App. A.3).

    ``optimizer="converged"`` is another method (see `solver`): the minimum itself, with L2 of weight
    ``anchor`` towards the model's own head. Rate, epochs, batches, seed, precision and ``leading`` then say nothing.
    ``balanced`` lets every class count the same in the loss, however many images it has; DFR does so by itself.
    ``leading=2048`` trains a large first layer (VGG-16's) along that many directions only, those that lead among its
    inputs, where many images span more: nearly the same heads in a part of the time (docs/decisions/0035).
    """

    optimizer: Optimizer = "sgd"
    learning_rate: float = 1e-4
    epochs: int = 10
    batch_size: int = 32
    seed: int = 0
    device: str = "cpu"
    precision: Precision = "float32"
    anchor: float = 1e-2
    balanced: bool = False
    leading: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        check_choice("optimizer", self.optimizer, Optimizer)
        check_choice("precision", self.precision, Precision)
        check_device(self.device)
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        if not self.anchor > 0:
            raise OptionError(f"anchor is {self.anchor}; it must be above 0, or the minimum may lie at infinity.")
        if self.leading != "all" and not (isinstance(self.leading, int) and self.leading >= 1):
            raise OptionError(f"leading is {self.leading!r}; it must be a whole number of at least 1, or 'all'.")
        if self.epochs < 1 or self.batch_size < 1 or self.seed < 0:
            raise OptionError(
                f"epochs={self.epochs}, batch_size={self.batch_size}, seed={self.seed}: at least 1, 1 and 0 are needed."
            )


_CORRECTION_RATE = 1e-4


def recipe_for(
    study: Study | type[Study],
    model: str,
    *,
    fresh: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Pretraining:
    """Return how a model is trained on a dataset: optimiser and rate by architecture, epochs and milestones by dataset.

    Args:
        fresh: the model starts from random weights, where the paper's start from pretrained ones: Adam along a cosine,
            if the dataset has a rate for that.
        epochs: None is the dataset's number; the milestones stay where they are.
    """
    known, recipe = architecture_named(model), study.recipe
    if epochs is None and model not in recipe.epochs:
        others = f" Known: {', '.join(recipe.epochs)}." if recipe.epochs else ""
        raise OptionError(f"{study.title} has no recipe for {model!r}.{others} Give the number of epochs.")
    from_scratch = fresh and model in recipe.fresh_rates
    return Pretraining(
        optimizer="adam" if from_scratch else known.optimizer,
        learning_rate=recipe.fresh_rates[model] if from_scratch else known.learning_rate,
        milestones=None if from_scratch else recipe.milestones,
        epochs=recipe.epochs[model] if epochs is None else epochs,
        batch_size=recipe.batch_size,
        seed=seed,
        device=device,
    )


def tuning_for(
    study: Study | type[Study], model: str, *, epochs: int = 10, seed: int = 0, device: str = "cpu"
) -> FineTuning:
    """Return how a model is corrected: the optimiser of its training at 1e-4, or at the dataset's own rate."""
    return FineTuning(
        optimizer=architecture_named(model).optimizer,
        learning_rate=study.recipe.correction_rates.get(model, _CORRECTION_RATE),
        epochs=epochs,
        seed=seed,
        device=device,
    )
