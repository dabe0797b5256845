"""Heads trained to convergence by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hansfree._internal.progress import Progress
from hansfree.activations import Features, Live
from hansfree.corrections.training.head_loop import (
    FunctionalHead,
    HeadBatch,
    Heads,
    SolverSupport,
    TrainedHead,
    Watch,
    image_weights,
    mean_loss,
    warn_of_strengths,
)
from hansfree.errors import OptionError
from hansfree.models.surgery import Cut, exact_forward_mode, on_device

if TYPE_CHECKING:
    from hansfree.corrections.latent import LatentCorrection

MAX_ITERATIONS = 500  # the solver usually needs some dozens


def check_float64(device: str) -> None:
    """Raise for a device without float64, which the solver needs."""
    if torch.device(device).type == "mps":
        raise OptionError("Training to convergence needs float64, which mps does not have. Use the device 'cpu'.")


def minimise(value: Callable[[], Tensor], tensors: Collection[Tensor], *, tolerance: float) -> float:
    """Move leaf tensors to the minimum of ``value``, until no component of the gradient is above ``tolerance``.

    Return the largest component there.
    """
    solver = torch.optim.LBFGS(
        tensors,
        max_iter=MAX_ITERATIONS,
        history_size=20,
        tolerance_grad=tolerance,
        tolerance_change=tolerance / 3e4,
        line_search_fn="strong_wolfe",
    )

    def total() -> Tensor:
        solver.zero_grad()
        found = value()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    solver.step(total)  # type: ignore[no-untyped-call]
    total()  # the line search may have looked elsewhere last
    return max((float(tensor.grad.abs().max()) for tensor in tensors if tensor.grad is not None), default=0.0)


Tensors = dict[str, Tensor]
Solve = Callable[[float], tuple[Tensors, float]]  # from a strength to the weights that changed, and the gradient left
Change = Callable[[Tensors], Tensors]  # from what the solver moves to what the weights move by
MAX_WEIGHTS = 5_000_000  # weights of a head: the solver keeps forty copies of them in float64
GRADIENT_TOLERANCE = 3e-5  # of the largest component, along axes of about the same curvature
MAX_GRADIENT = 1e-3  # warn above: the solver stopped before the minimum
_CURVATURE = 0.25  # of the loss, at a probability of one half


@dataclass(frozen=True, eq=False)
class Axes:
    """Axes along which the loss curves by about 1, and the penalty by the strength times a size."""

    weight: str
    bias: str
    center: Tensor
    directions: Tensor  # one per column
    coordinates: Tensor  # what a weight is multiplied by to be written along them
    sizes: Tensor

    @classmethod
    def of(cls, entry: str, values: Tensor, tangents: Live, shares: Tensor, *, anchor: float, has_bias: bool) -> Axes:
        """Find them for the linear layer ``entry``, images whose shares sum to 1, and L2 of the weight ``anchor``."""
        center = shares @ values if has_bias else torch.zeros_like(values[0])
        loss = _CURVATURE * (shares[:, None] * (values - center)).T @ (values - center)
        loss.diagonal().add_(2 * anchor)
        penalty = torch.zeros_like(loss)
        for tangent in tangents:
            rows = tangent.flatten(0, 1)
            penalty += 2 * rows.T @ rows / len(values)
        root = torch.linalg.cholesky(loss)
        half = torch.linalg.solve_triangular(root, penalty, upper=False)
        sizes, vectors = torch.linalg.eigh(torch.linalg.solve_triangular(root, half.T, upper=False))
        directions = torch.linalg.solve_triangular(root.T, vectors, upper=True)
        return cls(f"{entry}.weight", f"{entry}.bias", center, directions, root @ vectors, sizes.clamp(min=0))

    def scaled(self, strength: float) -> Change:
        """Return what turns steps along the axes into changes of the weights."""
        lengths = self._lengths(strength)

        def change(moved: Tensors) -> Tensors:
            by = {self.weight: (moved[self.weight] * lengths) @ self.directions.T}
            return by | {self.bias: moved[self.bias] - by[self.weight] @ self.center} if self.bias in moved else by

        return change

    def penalty(self, begin: Tensors, outputs: Tensor, strength: float) -> Callable[[Tensors], Tensor]:
        """Return the strength times the mean squared derivative of some outputs, as a function of the steps.

        Along the axes it is a sum of squares, and no image has to be looked at. ``begin`` are the weights before the
        first step, ``outputs`` what the outputs take of each logit, ``(classes, outputs)``.
        """
        first, lengths = begin[self.weight] @ self.coordinates, self._lengths(strength)

        def value(moved: Tensors) -> Tensor:
            along = outputs.T @ (first + moved[self.weight] * lengths)
            return strength / 2 * (along.square() * self.sizes).sum()

        return value

    def _lengths(self, strength: float) -> Tensor:
        return (1 + strength * self.sizes).rsqrt()


def converged(cut: Cut, features: Features, objective: LatentCorrection) -> Solve:
    """Return what trains the head of a strength to convergence; each starts from the solution of the one before."""
    if objective.solver is SolverSupport.NONE or features.at_layer:
        raise OptionError(
            f"optimizer='converged' does not support {objective.name}: its penalty is sampled, or needs more than the "
            "inputs of the head. Use optimizer='sgd' or 'adam'."
        )
    check_float64(objective.tuning.device)
    check_head_size(cut)
    cut.eval_mode()
    return _Problem(cut, features, objective).solve


def solutions(
    cut: Cut,
    objective: LatentCorrection,
    strengths: Sequence[float],
    solve: Solve,
    max_gradient: float,
    *,
    watch: Watch | None,
    progress: Progress,
    label: str,
) -> Iterator[TrainedHead]:
    """Yield one head per strength, and warn once of strengths without a solution.

    Args:
        max_gradient: Warn above: the solver stopped before the minimum.
    """
    failed: dict[float, str] = {}
    steep: dict[float, str] = {}
    for number, strength in enumerate(progress(strengths, total=len(strengths), label=label), start=1):
        found, gradient = solve(strength)
        heads = Heads(cut, 1, objective.tuning.device)
        with torch.no_grad():
            for name, tensor in found.items():
                heads.parameters[name][0] = tensor
        history = () if watch is None else (watch(heads)[0],)
        is_finite = heads.are_finite()[0]
        if not is_finite:
            failed[strength] = ""
        elif not gradient <= max_gradient:
            steep[strength] = f" (gradient {gradient:.1e})"
        if number == len(strengths):  # before the last yield: the caller may stop there
            warn_of_strengths(f"{label} has no solution in finite numbers", objective, failed)
            warn_of_strengths(f"{label}: the solver stopped before the minimum", objective, steep)
        yield TrainedHead(strength, partial(heads.state, 0), is_finite, history)


def check_head_size(
    cut: Cut, *, advice: str = "Train the last linear layer only (train='last'), or use optimizer='sgd'."
) -> None:
    """Raise for a head that is too large for the solver, with advice in the caller's terms."""
    size = sum(parameter.numel() for parameter in cut.head_parameters().values())
    if size > MAX_WEIGHTS:
        raise OptionError(
            f"optimizer='converged' is for heads of up to {MAX_WEIGHTS:,} weights, and this one has {size:,}. {advice}"
        )


class _Problem:
    """Loss, penalty and L2 of one head on one set of images."""

    def __init__(self, cut: Cut, features: Features, objective: LatentCorrection) -> None:
        self.objective, tuning = objective, objective.tuning
        exact = Heads(cut, 1, tuning.device, dtype=torch.float64)
        self.parts, self.fixed = exact.parts, exact.fixed
        self.start = {name: tensor[0].detach() for name, tensor in exact.parameters.items()}
        self.found = self.start
        values, tangents = (
            tuple(tensor.double() for tensor in live) for live in features.rows(slice(None), tuning.device)
        )
        self.batch = HeadBatch(
            values=values,
            tangents=tangents,
            labels=torch.from_numpy(np.array(features.labels)).to(tuning.device),
            rows=np.arange(len(features)),
            noise=torch.Generator().manual_seed(tuning.seed),
            trunk=on_device(cut.trunk, tuning.device),
            phi=on_device(cut.phi, tuning.device),
        )
        self.counts = image_weights(features, tuning)
        self.axes, self.outputs = self._axes(), None
        if self.axes is not None and self.batch.tangents and objective.solver is SolverSupport.QUADRATIC:
            each = torch.eye(len(self.start[self.axes.weight])).to(self.axes.sizes)
            self.outputs = objective.outputs(each)

    def solve(self, strength: float) -> tuple[Tensors, float]:
        """Return the weights at the minimum and the gradient left there, starting from those of the strength before."""
        begin, change = self.found, dict if self.axes is None else self.axes.scaled(strength)
        moved = {name: torch.zeros_like(tensor).requires_grad_() for name, tensor in begin.items()}

        def weights() -> Tensors:
            by = change(moved)
            return {name: tensor + by[name] for name, tensor in begin.items()}

        penalty = None
        if self.axes is not None and self.outputs is not None:
            penalty = self.axes.penalty(begin, self.outputs, strength)

        def value() -> Tensor:
            return self.value(weights(), strength) if penalty is None else self.value(weights()) + penalty(moved)

        gradient = minimise(value, moved.values(), tolerance=GRADIENT_TOLERANCE)
        found = {name: tensor.detach() for name, tensor in weights().items()}
        # the next strength must not start from weights that diverged
        self.found = found if all(bool(tensor.isfinite().all()) for tensor in found.values()) else self.start
        return found, gradient

    def value(self, weights: Tensors, strength: float | None = None) -> Tensor:
        """Return the objective; without a strength all but the penalty."""
        head = FunctionalHead(self.parts, {**self.fixed, **weights})
        if strength is None:
            logits, penalty = head(*self.batch.values), None
        else:
            with exact_forward_mode():
                logits, penalty = self.objective.loss_terms(head, self.batch)
        far = torch.stack([(weights[name] - tensor).square().sum() for name, tensor in self.start.items()]).sum()
        value = mean_loss(logits, self.batch.labels, self.counts) + self.objective.tuning.anchor * far
        return value if strength is None or penalty is None else value + strength * penalty.mean()

    def _axes(self) -> Axes | None:
        if self.parts.entry is None or not self.parts.is_linear:
            return None
        (values,) = self.batch.values
        counts = values.new_ones(len(values)) if self.counts is None else self.counts.to(values)
        return Axes.of(
            self.parts.entry,
            values,
            self.batch.tangents,
            counts / len(values),
            anchor=self.objective.tuning.anchor,
            has_bias=f"{self.parts.entry}.bias" in self.start,
        )
