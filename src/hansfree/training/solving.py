"""Heads at the minimum of their objective, instead of after so many epochs: another method, for small heads.

The whole set is one batch, in float64, without dropout. Each strength starts from the solution of the one before, and
stops when it has converged. L2 towards the model's own head keeps as it was what the images do not speak of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hansfree.activations import Features
from hansfree.errors import OptionError
from hansfree.progress import Progress, silent
from hansfree.splitting import Split, exact_forward_mode, on_device
from hansfree.training.balance import mean_loss
from hansfree.training.heads import Heads, WeightedHead
from hansfree.training.loop import HeadBatch, Objective, TrainedHead, Watch, image_weights
from hansfree.training.minimum import minimise
from hansfree.training.tuning import FineTuning

log = logging.getLogger(__name__)

_LARGEST = 5_000_000  # weights of a head: the solver keeps forty copies of them in float64
_FLAT = 3e-5  # the largest slope that counts as none, along axes of about the same curvature
_STEEP = 1e-3  # the largest slope that is left without a word
_SURE = 0.25  # what a probability of one half adds to the curvature of the loss

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], Tensors]  # from what the solver moves to what the weights move by


def solve_heads(
    cut: Split,
    features: Features,
    objective: Objective,
    strengths: Sequence[float],
    tuning: FineTuning,
    *,
    watch: Watch | None = None,
    progress: Progress = silent,
    label: str = "solving",
) -> Iterator[TrainedHead]:
    """Solve for one head per strength, in their order; the watch sees each head once."""
    if not objective.is_smooth:
        raise OptionError(
            "optimizer='converged' needs a penalty that is the same whenever it is computed, at the head's input: "
            "not RRR, target='random', norm='cosine' or positions='each'."
        )
    check_solvable(cut)
    cut.eval_mode()
    problem = _Problem(cut, features, objective, tuning)
    for strength in progress(strengths, total=len(strengths), label=label):
        found = problem.solve(strength)
        heads = Heads(cut, 1, tuning.device)
        with torch.no_grad():
            for name, tensor in heads.parameters.items():
                tensor[0].copy_(found[name])
        history = () if watch is None else (watch(heads)[0],)
        is_finite = heads.are_finite()[0]
        if not is_finite:
            log.warning("%s: strength %g has no solution in finite numbers.", label, strength)
        yield TrainedHead(strength, partial(heads.state, 0), is_finite, history)


def check_solvable(cut: Split) -> None:
    """Refuse a head that is too large to be solved for."""
    size = sum(parameter.numel() for parameter in cut.head_parameters().values())
    if size > _LARGEST:
        raise OptionError(
            f"optimizer='converged' is for heads of up to {_LARGEST:,} weights, and this one has {size:,}. Train the "
            "last linear layer only (train='last'), or use optimizer='sgd'."
        )


class _Problem:
    """Loss, penalty and L2 of one head on one set of images."""

    def __init__(self, cut: Split, features: Features, objective: Objective, tuning: FineTuning) -> None:
        self.objective, self.anchor = objective, tuning.anchor
        exact = Heads(cut, 1, tuning.device, dtype=torch.float64)
        self.parts, self.fixed = exact.parts, exact.fixed
        self.start = {name: tensor[0].detach() for name, tensor in exact.parameters.items()}
        self.found = self.start
        self.batch = self.penalised = _whole_set(cut, features, tuning)
        self.counts = image_weights(features, tuning)
        if self.batch.tangents and objective.is_quadratic and self.parts.is_linear:
            self.penalised = _condensed(self.batch)
        self.axes = self._axes() if self.parts.is_linear else None

    def solve(self, strength: float) -> Tensors:
        """Return the weights at the minimum, starting from those of the strength before."""
        begin, change = self.found, dict if self.axes is None else self.axes.scaled(strength)
        moved = {name: torch.zeros_like(tensor).requires_grad_() for name, tensor in begin.items()}

        def weights() -> Tensors:
            by = change(moved)
            return {name: tensor + by[name] for name, tensor in begin.items()}

        slope = minimise(lambda: self.value(weights(), strength), moved.values(), flat=_FLAT)
        if not slope <= _STEEP:
            log.warning("Strength %g: the solver stopped before the minimum (slope %.1e).", strength, slope)
        found = {name: tensor.detach() for name, tensor in weights().items()}
        # one that ran away must not be where the next one starts
        self.found = found if all(bool(tensor.isfinite().all()) for tensor in found.values()) else self.start
        return found

    def value(self, weights: Tensors, strength: float) -> Tensor:
        """Return what is made small."""
        head = WeightedHead(self.parts, {**self.fixed, **weights})
        with exact_forward_mode():
            logits, penalty = self.objective.forward(head, self.penalised)
            if self.penalised is not self.batch:
                logits = head(*self.batch.values)
        far = torch.stack([(weights[name] - tensor).square().sum() for name, tensor in self.start.items()]).sum()
        value = mean_loss(logits, self.batch.labels, self.counts) + self.anchor * far
        return value if penalty is None else value + strength * penalty.sum() / len(self.batch.labels)

    def _axes(self) -> _Axes:
        (values,) = self.batch.values
        weight, bias = f"{self.parts.entry}.weight", f"{self.parts.entry}.bias"
        share = (values.new_ones(len(values)) if self.counts is None else self.counts.to(values)) / len(values)
        center = share @ values if bias in self.start else torch.zeros_like(values[0])
        loss = _SURE * (share[:, None] * (values - center)).T @ (values - center)
        loss.diagonal().add_(2 * self.anchor)
        penalty = torch.zeros_like(loss)
        for tangent in self.penalised.tangents:
            rows = tangent.flatten(0, 1)
            penalty += 2 * rows.T @ rows / len(values)
        root = torch.linalg.cholesky(loss)
        half = torch.linalg.solve_triangular(root, penalty, upper=False)
        sizes, vectors = torch.linalg.eigh(torch.linalg.solve_triangular(root, half.T, upper=False))
        directions = torch.linalg.solve_triangular(root.T, vectors, upper=True)
        return _Axes(weight, bias, center, directions, sizes.clamp(min=0))


@dataclass(frozen=True, eq=False)
class _Axes:
    """Axes along which a linear head has about the same curvature: dozens of steps instead of hundreds.

    Along each of the ``directions`` the curvature of the loss is about 1, and that of the penalty the strength times
    one of the ``sizes``.
    """

    weight: str
    bias: str
    center: Tensor
    directions: Tensor
    sizes: Tensor

    def scaled(self, strength: float) -> Change:
        """Return what turns steps along the axes into changes of the weights."""
        lengths = (1 + strength * self.sizes).rsqrt()

        def change(moved: Tensors) -> Tensors:
            by = {self.weight: (moved[self.weight] * lengths) @ self.directions.T}
            return by | {self.bias: moved[self.bias] - by[self.weight] @ self.center} if self.bias in moved else by

        return change


def _whole_set(cut: Split, features: Features, tuning: FineTuning) -> HeadBatch:
    values, tangents = (tuple(tensor.double() for tensor in live) for live in features.rows(slice(None), tuning.device))
    return HeadBatch(
        values=values,
        tangents=tangents,
        labels=torch.from_numpy(np.array(features.labels)).to(tuning.device),
        rows=np.arange(len(features)),
        noise=torch.Generator().manual_seed(tuning.seed),
        trunk=on_device(cut.trunk, tuning.device),
        phi=on_device(cut.phi, tuning.device),
    )


def _condensed(batch: HeadBatch) -> HeadBatch:
    """Return as few rows as there are features, whose sum of squares under any linear head is that of all tangents.

    With ``T`` the tangents of all images and directions, ``|W T|^2 = |W R|^2`` where ``R`` has the same products with
    itself: a thousand rows instead of images times directions.
    """
    (tangent,) = batch.tangents
    rows = tangent.flatten(0, 1)
    sizes, vectors = torch.linalg.eigh(rows.T @ rows)
    factor = sizes.clamp(min=0).sqrt()[:, None] * vectors.T
    return replace(batch, values=(torch.zeros_like(factor),), tangents=(factor[None],))
