"""RR-ClArC: penalise the derivative of the output, or its change, along the bias direction."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.func import vjp

from hansfree.activations import Activations, FeatureSpec, channel_axis, count_positions, random_signs, sum_positions
from hansfree.cavs import CAV
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.latent import CAVCorrection, count_classes
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch, SolverSupport, push
from hansfree.errors import DataError, OptionError, check_choice
from hansfree.models.surgery import Cut

NamedTarget = Literal["expected", "random", "all", "logprob"]
Target = NamedTarget | int | Sequence[int]
Norm = Literal["squared", "absolute", "cosine"]
Positions = Literal["sum", "each"]
Scale = Literal["artifact", "paper"]
_GRID = (*(float(f"{digit}e{power}") for power in range(-3, 4) for digit in (1, 2, 5)), 1e4)  # 22 strengths
_PAPER_GRID = (5e1, *(float(f"{digit}e{power}") for power in range(2, 12) for digit in (1, 5)), 1e12)  # App. A.3: 22


class RRClArC(CAVCorrection, name="rr-clarc"):
    """Fine-tune with a penalty on ``u``, the derivative of the logits when the bias direction is added everywhere.

    One forward-mode pass gives ``u`` for all classes at once. The paper draws a random sign per class and squares the
    signed sum; the expectation of that is the sum of squares, which ``target="expected"`` takes without noise.

    Args:
        target: ``"expected"``, ``"random"`` (the paper's sampled signs), ``"all"`` (ones), ``"logprob"`` (all
            log-probabilities), a class, or several classes (the sum over them).
        norm: ``"squared"``, ``"absolute"``, or ``"cosine"`` between the gradient, summed over positions, and the
            direction.
        positions: ``"sum"`` penalises the effect of adding the direction everywhere at once; ``"each"`` the squared
            effects of single positions, so that they cannot cancel (by a random sign per position and step).
        scale: ``"artifact"`` measures ``u`` in units of the artifact's own size, so that a strength means the same at
            every layer; ``"paper"`` is the authors' published code, for the paper's lambdas.

    Several directions add up, each in its own size. ``scale="artifact"`` and ``"paper"`` differ in:

    - the direction: as long as the artifact at every position; a unit vector, with the gradient's mean over positions.
    - ``norm="cosine"``: squared; its absolute value.
    - ``target="logprob"``: the sum of ``log p``; the mean over classes of ``log(p + 1e-5)``.
    - ``positions="each"``: a sum of squares, by random signs; the mean over positions of any norm, without signs.
    - signs of the classes in `hansfree reproduce`: their expectation; sampled per image and step (``--grid paper``).

    Examples:
        >>> from hansfree.cavs import SignalCAV
        >>> RRClArC(SignalCAV(), target=[0, 2]).target
        [0, 2]
    """

    rank = 4
    info = MethodInfo(
        title="RR-ClArC",
        strengths=_GRID,
        needs=frozenset({Need.CAV}),
        in_default_run=True,
        paper_strengths=_PAPER_GRID,
        paper_options={"scale": "paper", "target": "random"},
    )

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
        if positions == "each" and norm != "squared" and scale != "paper":
            raise OptionError(
                f"positions='each' is a sum of squares and goes with norm='squared' only, not {norm!r}. "
                "Use scale='paper' for other norms."
            )
        self.target = target
        self.norm = norm
        self.positions = positions
        self.scale = scale

    def features(self, activations: Activations) -> FeatureSpec:
        """Return tangents along the CAV; at the layer where single channels or positions count, which phi hides."""
        return FeatureSpec(directions=self._scaled(activations), at_layer=self._is_at_layer)

    @property
    def solver(self) -> SolverSupport:
        """Quadratic, unless the outputs are not linear, are sampled, or count by another norm."""
        if self._named == "random" or self._is_at_layer:
            return SolverSupport.NONE
        return SolverSupport.QUADRATIC if self.norm == "squared" and self._named != "logprob" else SolverSupport.SMOOTH

    @property
    def _is_at_layer(self) -> bool:
        return self.norm == "cosine" or self.positions == "each"

    @property
    def _needs_gradient(self) -> bool:
        """Whether the derivative along the direction, with all positions moved, does not suffice."""
        return self.norm == "cosine" or (self.positions == "each" and self.scale == "paper")

    def _scaled(self, activations: Activations) -> np.ndarray:
        """Return the CAV's directions in the unit of the derivative."""
        if self.scale == "artifact":
            return self.cav.directions_ * self.cav.size_[:, None]
        return self.cav.directions_ / count_positions((1, *activations.shape))

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for a class that the model does not have, and for a CAV of another layer or without size."""
        super().check(cut, activations)
        classes = count_classes(cut, activations)
        if not all(0 <= c < classes for c in self._classes):
            raise OptionError(f"target is {self.target!r}, but the model has the classes 0 to {classes - 1}.")
        if self.scale == "artifact" and not np.all(self.cav.size_ > 0):
            raise DataError("The CAV has no size: artifact and clean images score alike along it. Fit it again.")

    def loss_terms(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits and the penalty on their derivative."""
        if self._needs_gradient:
            return self._from_gradient(head, batch)
        logits, responses = self._respond(head, batch)
        return logits, self._size(responses).sum((0, 2))

    def _size(self, responses: Tensor) -> Tensor:
        is_square = self.norm == "squared" or (self.norm == "cosine" and self.scale == "artifact")
        return responses.square() if is_square else responses.abs()

    def _respond(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor]:
        """Return the logits, and what the outputs do along each direction, ``(k, n, outputs)``."""
        values, tangents = batch.values, batch.tangents
        if self.positions == "each":
            layer, *others = tangents
            values, tangents = push(batch.phi, values, (layer * random_signs(values[0], batch.noise), *others))
        logits, along = head.push(values, tangents)
        _, (responses,) = push(lambda said: (self.outputs(said, batch.noise),), (logits,), (along,))
        return logits, responses

    def _from_gradient(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor]:
        def measured(*values: Tensor) -> tuple[Tensor, Tensor]:
            logits = head(*batch.phi(*values))
            return self.outputs(logits, batch.noise), logits

        outputs, pull_back, logits = vjp(measured, *batch.values, has_aux=True)  # type: ignore[misc]
        layer = batch.tangents[0]
        directions = sum_positions(layer.flatten(0, 1)).reshape(*layer.shape[:2], 1, -1)  # (k, n, 1, channels)
        penalty = torch.zeros_like(outputs[:, 0])
        for i in range(outputs.shape[1]):
            weight = torch.zeros_like(outputs)
            weight[:, i] = 1
            gradient = pull_back(weight)[0]
            # a cosine of the sum is that of the mean
            gradient = _by_position(gradient) if self.positions == "each" else sum_positions(gradient)[:, None]
            if self.norm == "cosine":
                responses = torch.cosine_similarity(gradient, directions, dim=3)  # (k, n, positions)
            else:
                responses = (gradient * directions).sum(3)
            penalty = penalty + self._size(responses).mean(2).sum(0)
        return logits, penalty

    def outputs(self, logits: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Return the outputs whose derivatives count, ``(n, outputs)``: the paper's ``m . f``, or several such."""
        if self._classes:
            return logits[:, list(self._classes)]
        if self._named == "random":
            signs = 2 * torch.randint(0, 2, logits.shape, generator=noise).to(logits) - 1
            return (signs * logits).sum(1, keepdim=True)
        if self._named == "all":
            return logits.sum(1, keepdim=True)
        if self._named == "logprob":
            if self.scale == "paper":
                return published_log_probabilities(logits).mean(1, keepdim=True)
            return logits.log_softmax(1).sum(1, keepdim=True)
        return logits


def published_log_probabilities(logits: Tensor) -> Tensor:
    """Return ``log(p + 1e-5)``, as the authors' code does: below 1e-5 a probability hardly counts."""
    return (logits.softmax(1) + 1e-5).log()


def _by_position(activations: Tensor) -> Tensor:
    """Return activations as ``(n, positions, channels)``."""
    last = activations.movedim(channel_axis(activations.ndim), -1)
    return last.reshape(len(last), -1, last.shape[-1])


def _as_classes(target: int | Sequence[int]) -> tuple[int, ...]:
    try:
        classes = tuple(operator.index(label) for label in (target if isinstance(target, Iterable) else [target]))
    except TypeError:
        raise OptionError(f"target is {target!r}; allowed are class numbers and {get_args(NamedTarget)}.") from None
    if not classes:
        raise OptionError(f"target is {target!r}, which names no class: nothing would be penalised.")
    return classes


StepNorm = Literal["squared", "absolute"]


class RRClArCStep(RRClArC, name="rr-clarc-step"):
    """Fine-tune with a penalty on the difference between the logits with and without the artifact's whole shift.

    A head that saturates can have no derivative and still react to the whole step, which is as long as the artifact is
    along each direction, at every position. For a head that is linear in the direction it is RR-ClArC. Along one in
    which the artifact moves images both ways (``scale_`` of 0) the steps both ways count, by half each.

    Args:
        target: As for `RRClArC`, without sampled signs: ``"expected"``, ``"all"``, ``"logprob"``, a class or several.
        norm: ``"squared"`` or ``"absolute"``.
    """

    rank = 5
    info = MethodInfo(title="RR-ClArC (step)", strengths=_GRID, needs=frozenset({Need.CAV}), paper_strengths=_GRID)

    def __init__(
        self,
        cav: CAV,
        *,
        strength: float = 1.0,
        target: Target = "expected",
        norm: StepNorm = "squared",
        tuning: FineTuning | None = None,
    ) -> None:
        check_choice("norm", norm, StepNorm)
        if isinstance(target, str) and target == "random":
            raise OptionError("target='random' draws signs anew for every pass, and a step is a difference of two.")
        super().__init__(cav, strength=strength, target=target, norm=norm, tuning=tuning)

    def features(self, activations: Activations) -> FeatureSpec:
        """Return finite steps along the CAV; where one direction has no side all come twice, it with both signs."""
        once = self._scaled(activations)
        if not self._has_sides:
            once = np.concatenate([once, np.where(self.cav.scale_[:, None] > 0, once, -once)])
        return FeatureSpec(directions=once, finite_steps=True)

    def outputs(self, logits: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Let what comes twice count by half, in the squares or the absolute values that are summed."""
        outputs = super().outputs(logits, noise)
        if self._has_sides:
            return outputs
        return outputs / (2**0.5 if self.norm == "squared" else 2)

    @property
    def _has_sides(self) -> bool:
        return bool(np.all(self.cav.scale_ > 0))

    def _respond(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor]:
        logits, moved = head.finite_step(batch.values, batch.tangents)
        after = torch.stack([self.outputs(each, batch.noise) for each in moved])
        return logits, after - self.outputs(logits, batch.noise)
