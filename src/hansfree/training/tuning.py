"""The recipe of a head's fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hansfree.errors import OptionError, check_choice

Optimizer = Literal["sgd", "adam", "converged"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How a head is fine-tuned; the defaults are the paper's recipe (App. A.3).

    ``optimizer="converged"`` is another method (`hansfree.training.solving`): the minimum itself, with L2 of weight
    ``anchor`` towards the model's own head. Rate, epochs, batches, seed and precision then say nothing.
    ``balanced`` lets every class count the same in the loss, however many images it has; DFR does so by itself.
    ``leading`` is along how many directions a large first layer (VGG-16's) is trained where many images span more than
    twice as many: those that lead (docs/decisions/0035). "all" is the paper's recipe to the letter, and slower.
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
    leading: int | Literal["all"] = 2_048

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        check_choice("optimizer", self.optimizer, Optimizer)
        check_choice("precision", self.precision, Precision)
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        if not self.anchor > 0:
            raise OptionError(f"anchor is {self.anchor}; it must be above 0, or the minimum may lie at infinity.")
        if self.leading != "all" and self.leading < 1:
            raise OptionError(f"leading is {self.leading}; it must be at least 1, or 'all'.")
        if self.epochs < 1 or self.batch_size < 1 or self.seed < 0:
            raise OptionError(
                f"epochs={self.epochs}, batch_size={self.batch_size}, seed={self.seed}: at least 1, 1 and 0 are needed."
            )
