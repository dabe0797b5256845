"""Heads at the minimum of their objective, instead of after so many epochs: another method, for small heads.

The whole set is one batch, in float64, without dropout. Each strength starts from the solution of the one before, and
stops when it has converged. L2 towards the model's own head keeps as it was what the images do not speak of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hansfree.activations import Features
from hansfree.errors import OptionError
from hansfree.progress import Progress, silent
from hansfree.splitting import Split, exact_forward_mode, on_device
from hansfree.training.axes import Axes, Tensors
from hansfree.training.balance import mean_loss
from hansfree.training.heads import Heads, WeightedHead
from hansfree.training.loop import HeadBatch, Objective, TrainedHead, Watch, image_weights, warn_of_strengths
from hansfree.training.minimum import check_double, minimise
from hansfree.training.tuning import FineTuning

_LARGEST = 5_000_000  # weights of a head: the solver keeps forty copies of them in float64
_FLAT = 3e-5  # the largest slope that counts as none, along axes of about the same curvature
_STEEP = 1e-3  # the largest slope that is left without a word


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
    if why := objective.unsolvable:
        raise OptionError(f"optimizer='converged' has no minimum to go to: {why}. Use optimizer='sgd' or 'adam'.")
    check_double(tuning.device)
    check_solvable(cut)
    cut.eval_mode()
    problem = _Problem(cut, features, objective, tuning)
    failed: dict[float, str] = {}
    steep: dict[float, str] = {}
    for number, strength in enumerate(progress(strengths, total=len(strengths), label=label), start=1):
        found, slope = problem.solve(strength)
        heads = Heads(cut, 1, tuning.device)
        with torch.no_grad():
            for name, tensor in heads.parameters.items():
                tensor[0].copy_(found[name])
        history = () if watch is None else (watch(heads)[0],)
        is_finite = heads.are_finite()[0]
        if not is_finite:
            failed[strength] = ""
        elif not slope <= _STEEP:
            steep[strength] = f" (slope {slope:.1e})"
        if number == len(strengths):  # before the last head is handed out, as nobody need come back after it
            warn_of_strengths(f"{label} has no solution in finite numbers", objective, failed)
            warn_of_strengths(f"{label}: the solver stopped before the minimum", objective, steep)
        yield TrainedHead(strength, partial(heads.state, 0), is_finite, history)


def check_solvable(
    cut: Split, *, advice: str = "Train the last linear layer only (train='last'), or use optimizer='sgd'."
) -> None:
    """Refuse a head that is too large to be solved for.

    Args:
        advice: what helps, in the words of who asks.
    """
    size = sum(parameter.numel() for parameter in cut.head_parameters().values())
    if size > _LARGEST:
        raise OptionError(
            f"optimizer='converged' is for heads of up to {_LARGEST:,} weights, and this one has {size:,}. {advice}"
        )


class _Problem:
    """Loss, penalty and L2 of one head on one set of images."""

    def __init__(self, cut: Split, features: Features, objective: Objective, tuning: FineTuning) -> None:
        self.objective, self.anchor = objective, tuning.anchor
        exact = Heads(cut, 1, tuning.device, dtype=torch.float64)
        self.parts, self.fixed = exact.parts, exact.fixed
        self.start = {name: tensor[0].detach() for name, tensor in exact.parameters.items()}
        self.found = self.start
        self.batch = _whole_set(cut, features, tuning)
        self.counts = image_weights(features, tuning)
        self.axes, self.outputs = self._axes(), None
        if self.axes is not None and self.batch.tangents:
            each = torch.eye(len(self.start[self.axes.weight])).to(self.axes.sizes)
            self.outputs = objective.squared_outputs(each)

    def solve(self, strength: float) -> tuple[Tensors, float]:
        """Return the weights at the minimum and the slope there, starting from those of the strength before."""
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

        slope = minimise(value, moved.values(), flat=_FLAT)
        found = {name: tensor.detach() for name, tensor in weights().items()}
        # one that ran away must not be where the next one starts
        self.found = found if all(bool(tensor.isfinite().all()) for tensor in found.values()) else self.start
        return found, slope

    def value(self, weights: Tensors, strength: float | None = None) -> Tensor:
        """Return what is made small; without a strength all but the penalty."""
        head = WeightedHead(self.parts, {**self.fixed, **weights})
        if strength is None:
            logits, penalty = head(*self.batch.values), None
        else:
            with exact_forward_mode():
                logits, penalty = self.objective.forward(head, self.batch)
        far = torch.stack([(weights[name] - tensor).square().sum() for name, tensor in self.start.items()]).sum()
        value = mean_loss(logits, self.batch.labels, self.counts) + self.anchor * far
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
            anchor=self.anchor,
            has_bias=f"{self.parts.entry}.bias" in self.start,
        )


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
