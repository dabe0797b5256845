"""The one training loop: heads on cached features, many strengths at once.

All strengths see the same batches and the same dropout masks, so they differ by their penalty alone. Small heads are
stacked and trained in one go; large ones (VGG-16's has 119 million parameters) one after the other, in the coordinates
of what the images span where that is smaller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hansfree.activations import Features, Live
from hansfree.progress import Progress, silent
from hansfree.seeds import seeded
from hansfree.splitting import Split, exact_forward_mode, folded, on_device
from hansfree.training.balance import even_weights, mean_loss
from hansfree.training.heads import Heads, WeightedHead
from hansfree.training.recycling import Recycling
from hansfree.training.span import Span
from hansfree.training.tuning import FineTuning

log = logging.getLogger(__name__)

Watch = Callable[[Heads], Sequence[Any]]  # called after every epoch: one entry per head

_STACKED_BYTES = 64 * 2**20  # heads are trained together while their weights stay below this


@dataclass(frozen=True, eq=False)
class HeadBatch:
    """Some images at the head's input."""

    values: Live
    tangents: Live  # (k, rows, ...): derivatives along k directions, whole steps along them, or ways to a twin
    labels: Tensor
    rows: np.ndarray  # which images of the set
    noise: torch.Generator  # for what a method samples; the same for all strengths
    trunk: nn.Module
    phi: nn.Module  # from the layer to the head's input
    kept: dict[str, Any] = field(default_factory=dict)  # what a method keeps for the length of one training


class Objective(Protocol):
    """What a correction asks of a head beyond the right class."""

    @property
    def has_strength(self) -> bool:
        """Whether the strength says anything."""

    @property
    def reads_features(self) -> bool:
        """Whether all that it asks for follows from what the head makes of the features and of sums of them."""

    @property
    def unsolvable(self) -> str:
        """Why the penalty is no fixed function of the head's weights, with a minimum to go to; empty where it is."""

    def squared_outputs(self, logits: Tensor) -> Tensor | None:
        """Return outputs, linear in the logits, whose squared changes by tangents are all of the penalty; else None.

        Asked for heads that are one linear layer, of which a derivative and a whole step are the same.
        """

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the penalty whose mean the strength multiplies (None for none)."""


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A head after training with one strength."""

    strength: float
    make_state: Callable[[], dict[str, Tensor]]
    is_finite: bool
    history: tuple[Any, ...]  # what the watch said after every epoch

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """The weights under the model's names, made when they are first asked for: a large head's are put together."""
        return self.make_state()


def train_heads(
    cut: Split,
    features: Features,
    objective: Objective,
    strengths: Sequence[float],
    tuning: FineTuning,
    *,
    watch: Watch | None = None,
    progress: Progress = silent,
    label: str = "training",
) -> Iterator[TrainedHead]:
    """Fine-tune one head per strength from the model's own head; a strength that diverges is a result like any other.

    Yields in the order of the strengths, as soon as a group is done, so that large heads need not be kept.
    """
    if tuning.optimizer == "converged":
        from hansfree.training.solving import solve_heads  # here, as it is built on this loop's parts

        yield from solve_heads(cut, features, objective, strengths, tuning, watch=watch, progress=progress, label=label)
        return
    span = None
    if objective.reads_features and tuning.optimizer == "sgd":  # Adam steps along axes, which a rotation changes
        span = Span.where_smaller(cut, features, tuning)
    if span is not None:
        span.written(features)  # once, and before the progress starts
    groups, failed = group_strengths(cut, strengths, tuning), dict[float, str]()
    steps = -(-len(features) // tuning.batch_size) * tuning.epochs
    ticks = progress(range(steps * len(groups)), total=steps * len(groups), label=label)
    for group in groups:
        heads = Heads(cut, len(group), tuning.device, span=span)
        history = _train_group(cut, heads, features, objective, group, tuning, watch, ticks)
        finite = heads.are_finite()
        failed |= {strength: "" for strength, is_finite in zip(group, finite) if not is_finite}
        if group is groups[-1]:  # before its heads are handed out, as nobody need come back after them
            warn_of_strengths(f"{label} diverged", objective, failed)
        for i, strength in enumerate(group):
            yield TrainedHead(strength, partial(heads.state, i), finite[i], tuple(epoch[i] for epoch in history))


def group_strengths(cut: Split, strengths: Sequence[float], tuning: FineTuning) -> list[list[float]]:
    """Return which strengths are trained together; no group needs another, so each gives the same by itself."""
    if tuning.optimizer == "converged":
        return [list(strengths)]  # each starts from the solution of the one before
    size = sum(4 * parameter.numel() for parameter in cut.head_parameters().values())
    together = max(1, _STACKED_BYTES // size)
    return [list(strengths[i : i + together]) for i in range(0, len(strengths), together)]


def warn_of_strengths(what: str, objective: Objective, found: Mapping[float, str]) -> None:
    """Warn in one line of all strengths that something happened at, each with a remark; of none, say nothing."""
    if found:
        told = [f"{strength:g}{remark}" for strength, remark in found.items()]
        where = f" at strength {', '.join(told)}" if objective.has_strength else "".join(found.values())
        log.warning("%s%s.", what, where)


def image_weights(features: Features, tuning: FineTuning) -> Tensor | None:
    """Return what each image counts in the loss; None where all count the same."""
    return torch.from_numpy(even_weights(features.labels)).float().to(tuning.device) if tuning.balanced else None


def _train_group(
    cut: Split,
    heads: Heads,
    features: Features,
    objective: Objective,
    strengths: Sequence[float],
    tuning: FineTuning,
    watch: Watch | None,
    ticks: Iterator[int],
) -> list[Sequence[Any]]:
    by_head = torch.tensor(strengths, dtype=torch.float32, device=tuning.device)
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[tuning.optimizer](
        heads.parameters.values(), lr=tuning.learning_rate
    )
    trunk, phi = (on_device(part, tuning.device) for part in (cut.trunk, cut.phi))
    if not objective.reads_features:
        trunk = folded(trunk)
    counts = image_weights(features, tuning)
    history: list[Sequence[Any]] = []
    kept: dict[str, Any] = {}
    step = 0
    for epoch in range(tuning.epochs):
        cut.train_mode()
        for rows in _shuffled(len(features), tuning, epoch):
            with seeded(tuning.seed, step) as noise, exact_forward_mode(), _precision(tuning):
                values, tangents = heads.rows(features, rows)
                labels = torch.from_numpy(features.labels[rows]).to(tuning.device)
                batch = HeadBatch(values, tangents, labels, rows, noise, trunk, phi, kept)

                def loss(head: WeightedHead, strength: Tensor, batch: HeadBatch = batch) -> Tensor:
                    logits, penalty = objective.forward(head, batch)
                    each = None if counts is None else counts[batch.rows]
                    wrong = mean_loss(logits.float(), batch.labels, each)
                    return wrong if penalty is None else wrong + strength * penalty.float().mean()

                losses = heads.each(loss, by_head)
            losses.sum().backward()  # the heads share no weight, so each gets the gradient of its own loss
            optimizer.step()
            heads.memory.take_back(heads.parameters.values())
            step += 1
            next(ticks, None)
        cut.eval_mode()
        if watch is not None:
            history.append(watch(heads))
    heads.memory = Recycling()  # whoever keeps these heads need not keep their last gradients
    return history


def _shuffled(images: int, tuning: FineTuning, epoch: int) -> Iterator[np.ndarray]:
    order = np.random.default_rng((tuning.seed, epoch)).permutation(images)
    for start in range(0, images, tuning.batch_size):
        yield order[start : start + tuning.batch_size]


@contextmanager
def _precision(tuning: FineTuning) -> Iterator[None]:
    if tuning.precision == "float32":
        yield
        return
    with torch.autocast(torch.device(tuning.device).type, dtype=torch.bfloat16), _WideBatchNorm():
        yield


class _WideBatchNorm(TorchFunctionMode):
    """Let batch norm see float32: its forward-mode derivative takes no other input than its statistics' type."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is nn.functional.batch_norm:
            args = (args[0].float(), *args[1:])
        return func(*args, **(kwargs or {}))
