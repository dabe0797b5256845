"""How the biased model of a study comes about, and how it is to be corrected: what a user may choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hansfree.corrections import Correction
from hansfree.errors import OptionError, check_choice
from hansfree.models import architecture_named
from hansfree.splitting import Train, check_device
from hansfree.weights import check_weights

Trained = Literal["whole", "head"]
Grid = Literal["own", "paper"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the biased model of a study comes about, and how it is corrected.

    Args:
        weights: what training starts from (`hansfree.models.build_model`); None is random weights.
        trained: the ``"whole"`` model is trained on the poisoned images, or only its ``"head"`` on the layer's cached
            output: enough for pretrained weights, and minutes instead of hours.
        epochs: of training; None is the study's own recipe.
        corrected: what the corrections fine-tune: ``"all"`` after the layer, or only the ``"last"`` linear layer.
        repeats: seeds of the correction, or draws of a tournament.
        grid: each method's ``"own"`` strengths, or the ``"paper"``'s, in the paper's units.
        strengths: per method, instead of the grid.
        left_out: methods that are not run.
        workers: processes that read images, for sets that do not fit into memory.
    """

    model: str
    weights: str | None = None
    trained: Trained = "whole"
    epochs: int | None = None
    seed: int = 0
    device: str = "cpu"
    corrected: Train = "all"
    correction_epochs: int = 10
    repeats: int = 1
    grid: Grid = "own"
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    workers: int = 0

    def __post_init__(self) -> None:
        """Refuse names that do not exist before anything starts."""
        architecture_named(self.model)
        check_choice("trained", self.trained, Trained)
        check_choice("corrected", self.corrected, Train)
        check_choice("grid", self.grid, Grid)
        check_device(self.device)
        for name, value, least in (
            ("seed", self.seed, 0),
            ("repeats", self.repeats, 1),
            ("correction_epochs", self.correction_epochs, 1),
            ("workers", self.workers, 0),
        ):
            if value < least:
                raise OptionError(f"{name} is {value}; at least {least} is needed.")
        if self.trained == "head" and self.weights is None:
            raise OptionError(
                "--train head keeps the layers before the head as they are: give --weights whose layers are trained."
            )
        if self.weights is not None:
            check_weights(self.weights)
        for method in self.left_out:
            Correction.named(method)
        for method, values in self.strengths.items():
            if not Correction.named(method).has_strength:
                raise OptionError(f"{method} has no strength to choose: leave out its strengths.")
            if not values or not all(math.isfinite(value) and value >= 0 for value in values):
                raise OptionError(f"The strengths of {method} are {tuple(values)}; numbers of at least 0 are needed.")
