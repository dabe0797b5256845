"""The recipe of a head's fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hansfree.errors import OptionError, check_choice
from hansfree.splitting import check_device

Optimizer = Literal["sgd", "adam", "converged"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How a head is fine-tuned; the defaults are the paper's recipe (App. A.3).

    ``optimizer="converged"`` is another method (`hansfree.training.solving`): the minimum itself, with L2 of weight
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
