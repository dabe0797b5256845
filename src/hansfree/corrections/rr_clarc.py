"""RR-ClArC: penalise the derivative of the output along the bias direction (the paper's Eq. 5)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp
from torch.utils.data import Dataset
from typing_extensions import Self

from hansfree.activations import Activations
from hansfree.activations.positions import count_positions, random_signs, sum_positions
from hansfree.cavs import CAV
from hansfree.corrections.base import CAVCorrection, count_classes
from hansfree.errors import DataError, OptionError, check_choice
from hansfree.splitting import Split
from hansfree.training import FineTuning, HeadBatch, WeightedHead, push

NamedTarget = Literal["expected", "random", "all", "logprob"]
Target = NamedTarget | int | Sequence[int]
Norm = Literal["squared", "absolute", "cosine"]
Positions = Literal["sum", "each"]
Scale = Literal["artifact", "paper"]


class RRClArC(CAVCorrection, name="rr-clarc"):
    """Fine-tune with a penalty on ``u``, the derivative of the logits when the bias direction is added everywhere.

    One forward-mode pass gives ``u`` for all classes at once. The paper draws a random sign per class and squares the
    signed sum; the expectation of that is the sum of squares, which ``target="expected"`` takes without noise.

    Args:
        target: ``"expected"``, ``"random"`` (the paper's sampled signs), ``"all"`` (ones), ``"logprob"`` (the summed
            log-probabilities, as in RRR), a class, or several classes (the sum over them).
        norm: ``"squared"``, ``"absolute"``, or ``"cosine"``: the squared cosine between the gradient, summed over
            positions, and the direction.
        positions: ``"sum"`` penalises the effect of adding the direction everywhere at once; ``"each"`` the squared
            effects of single positions, so that they cannot cancel (by a random sign per position and step).
        scale: ``"artifact"`` measures ``u`` in units of the artifact's own size, so that a strength means the same at
            every layer; ``"paper"`` takes a unit direction and averages over positions, for the paper's lambdas.

    Several directions add up, each in its own size.

    Example:
        >>> from hansfree.cavs import SignalCAV
        >>> RRClArC(SignalCAV(), target=[0, 2]).target
        [0, 2]
    """

    title = "RR-ClArC"
    has_strength = True
    grid = (*(float(f"{digit}e{power}") for power in range(-3, 4) for digit in (1, 2, 5)), 1e4)  # 22 strengths
    paper_grid = (5e1, *(float(f"{digit}e{power}") for power in range(2, 12) for digit in (1, 5)), 1e12)  # App. A.3: 22

    def __init__(
        self,
        cav: CAV,
        *,
        strength: float = 1.0,
        target: Target = "expected",
        norm: Norm = "squared",
        positions: Positions = "sum",
        scale: Scale = "artifact",
        tuning: FineTuning | None = None,
    ) -> None:
        super().__init__(cav, strength=strength, tuning=tuning)
        check_choice("norm", norm, Norm)
        check_choice("positions", positions, Positions)
        check_choice("scale", scale, Scale)
        self._named = target if isinstance(target, str) else None
        if self._named is not None:
            check_choice("target", self._named, NamedTarget)
        self._classes = () if isinstance(target, str) else _as_classes(target)
        if self._named == "expected" and norm != "squared":
            raise OptionError(
                f"target='expected' is the expectation of squares and goes with norm='squared' only, not {norm!r}. "
                "Use target='random', 'all', 'logprob' or classes."
            )
        if positions == "each" and norm != "squared":
            raise OptionError(f"positions='each' is a sum of squares and goes with norm='squared' only, not {norm!r}.")
        self.target = target
        self.norm = norm
        self.positions = positions
        self.scale = scale

    @classmethod
    def for_paper(cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning) -> Self:
        """Make a member in the paper's scale."""
        return cls(cav, scale="paper", tuning=tuning)

    def describe(self) -> dict[str, str]:
        """Add target and norm."""
        return {**super().describe(), "target": str(self.target), "norm": self.norm}

    @property
    def at_layer(self) -> bool:
        """Say whether training starts at the layer: where single channels or positions count, phi hides too much."""
        return self.norm == "cosine" or self.positions == "each"

    @property
    def unsolvable(self) -> str:
        """Name the option at fault: sampled signs, and what is computed at the layer."""
        if self._named == "random":
            return "target='random' draws signs anew for every pass"
        if self.at_layer:
            return f"norm={self.norm!r} with positions={self.positions!r} is computed at the layer"
        return super().unsolvable

    def squared_outputs(self, logits: Tensor) -> Tensor | None:
        """Return the outputs; None where they bend, are drawn, or count by another norm."""
        is_squared = self.norm == "squared" and self._named != "logprob" and not self.unsolvable
        return self._outputs(logits, torch.Generator()) if is_squared else None

    def directions(self, activations: Activations) -> np.ndarray:
        """Return the CAV's directions in the unit of the derivative."""
        if self.scale == "artifact":
            return self.cav.directions_ * self.cav.size_[:, None]
        return self.cav.directions_ / count_positions((1, *activations.shape))

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse a class that the model does not have, and a CAV of another layer or without size."""
        super().check(cut, activations)
        classes = count_classes(cut, activations)
        if not all(0 <= c < classes for c in self._classes):
            raise OptionError(f"target is {self.target!r}, but the model has the classes 0 to {classes - 1}.")
        if self.scale == "artifact" and not np.all(self.cav.size_ > 0):
            raise DataError("The CAV has no size: artifact and clean images score alike along it. Fit it again.")

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits and the penalty on their derivative."""
        if self.norm == "cosine":
            return self._squared_cosine(head, batch)
        logits, responses = self._respond(head, batch)
        size = responses.square() if self.norm == "squared" else responses.abs()
        return logits, size.sum((0, 2))

    def _respond(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor]:
        """Return the logits, and what the outputs do along each direction, ``(k, n, outputs)``."""
        values, tangents = batch.values, batch.tangents
        if self.positions == "each":
            layer, *others = tangents
            values, tangents = push(batch.phi, values, (layer * random_signs(values[0], batch.noise), *others))
        logits, along = head.push(values, tangents)
        _, (responses,) = push(lambda said: (self._outputs(said, batch.noise),), (logits,), (along,))
        return logits, responses

    def _squared_cosine(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor]:
        def measured(*values: Tensor) -> tuple[Tensor, Tensor]:
            logits = head(*batch.phi(*values))
            return self._outputs(logits, batch.noise), logits

        outputs, pull_back, logits = vjp(measured, *batch.values, has_aux=True)  # type: ignore[misc]
        layer = batch.tangents[0]
        directions = sum_positions(layer.flatten(0, 1)).reshape(*layer.shape[:2], -1)  # (k, n, channels)
        penalty = torch.zeros_like(outputs[:, 0])
        for i in range(outputs.shape[1]):
            weight = torch.zeros_like(outputs)
            weight[:, i] = 1
            gradient = sum_positions(pull_back(weight)[0])
            penalty = penalty + torch.cosine_similarity(gradient, directions, dim=2).square().sum(0)
        return logits, penalty

    def _outputs(self, logits: Tensor, noise: torch.Generator) -> Tensor:
        """Return the outputs whose derivatives count, ``(n, outputs)``: the paper's ``m . f``, or several such."""
        if self._classes:
            return logits[:, list(self._classes)]
        if self._named == "random":
            signs = 2 * torch.randint(0, 2, logits.shape, generator=noise).to(logits) - 1
            return (signs * logits).sum(1, keepdim=True)
        if self._named == "all":
            return logits.sum(1, keepdim=True)
        if self._named == "logprob":
            return logits.log_softmax(1).sum(1, keepdim=True)
        return logits


def _as_classes(target: int | Sequence[int]) -> tuple[int, ...]:
    try:
        classes = tuple(operator.index(label) for label in (target if isinstance(target, Iterable) else [target]))
    except TypeError:
        raise OptionError(f"target is {target!r}; allowed are class numbers and {get_args(NamedTarget)}.") from None
    if not classes:
        raise OptionError(f"target is {target!r}, which names no class: nothing would be penalised.")
    return classes
