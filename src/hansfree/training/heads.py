"""The one training loop: heads on cached features, many strengths at once.

All strengths see the same batches and the same dropout masks, so they differ by their penalty alone. Small heads are
stacked and trained in one go; large ones (VGG-16's has 119 million parameters) one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from hansfree.activations import Features, Live
from hansfree.errors import OptionError, check_choice
from hansfree.progress import Progress, silent
from hansfree.seeds import seeded
from hansfree.splitting import HeadParts, Split, exact_forward_mode, on_device

log = logging.getLogger(__name__)

Optimizer = Literal["sgd", "adam", "converged"]
Precision = Literal["float32", "bfloat16"]
Head = Callable[..., Tensor]  # the head's inputs -> logits
Watch = Callable[["Heads"], Sequence[Any]]  # called after every epoch: one entry per head

_STACKED_BYTES = 64 * 2**20  # heads are trained together while their weights stay below this


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How a head is fine-tuned; the defaults are the paper's recipe (App. A.3).

    ``optimizer="converged"`` is another method (`hansfree.training.solving`): the minimum itself, with L2 of weight
    ``anchor`` towards the model's own head. Rate, epochs, batches, seed and precision then say nothing.
    """

    optimizer: Optimizer = "sgd"
    learning_rate: float = 1e-4
    epochs: int = 10
    batch_size: int = 32
    seed: int = 0
    device: str = "cpu"
    precision: Precision = "float32"
    anchor: float = 1e-2

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        check_choice("optimizer", self.optimizer, Optimizer)
        check_choice("precision", self.precision, Precision)
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        if not self.anchor > 0:
            raise OptionError(f"anchor is {self.anchor}; it must be above 0, or the minimum may lie at infinity.")
        if self.epochs < 1 or self.batch_size < 1 or self.seed < 0:
            raise OptionError(
                f"epochs={self.epochs}, batch_size={self.batch_size}, seed={self.seed}: at least 1, 1 and 0 are needed."
            )


@dataclass(frozen=True, eq=False)
class HeadBatch:
    """Some images at the head's input."""

    values: Live
    tangents: Live  # (k, rows, ...) for k directions
    labels: Tensor
    rows: np.ndarray  # which images of the set
    noise: torch.Generator  # for what a method samples; the same for all strengths
    trunk: nn.Module
    phi: nn.Module  # from the layer to the head's input


class Objective(Protocol):
    """What a correction asks of a head beyond the right class."""

    @property
    def is_smooth(self) -> bool:
        """Whether the penalty is a fixed function of the head's weights, so that it has a minimum to go to."""

    @property
    def is_quadratic(self) -> bool:
        """Whether the penalty of a linear head is a sum of squares of what it makes of the tangents."""

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the penalty whose mean the strength multiplies (None for none)."""


class WeightedHead:
    """A head with weights of its own: the head's inputs -> logits."""

    def __init__(self, parts: HeadParts, tensors: dict[str, Tensor]) -> None:
        self._parts, self._tensors = parts, tensors

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits."""
        return functional_call(self._parts.whole, self._tensors, inputs)  # type: ignore[no-any-return]

    def enter(self, values: Live, tangents: Live) -> tuple[Head, Live, Live]:
        """Take values and tangents ``(k, n, ...)`` through a leading linear layer together; return what is left.

        One matrix product, and one gradient of its weight, instead of two: in VGG-16 that weight has 411 MB. A head
        that starts otherwise is returned as it is.
        """
        if self._parts.entry is None:
            return self, values, tangents
        weight = self._tensors[f"{self._parts.entry}.weight"]
        bias = self._tensors.get(f"{self._parts.entry}.bias")
        (value,), (tangent,) = values, tangents
        rows = torch.cat([value, tangent.flatten(0, 1)]) @ weight.T
        first = rows[: len(value)] if bias is None else rows[: len(value)] + bias
        names = dict(self._parts.rest.named_parameters()) | dict(self._parts.rest.named_buffers())
        tensors = {name: self._tensors[name] for name in names}

        def rest(*inputs: Tensor) -> Tensor:
            return functional_call(self._parts.rest, tensors, inputs)  # type: ignore[no-any-return]

        return rest, (first,), (rows[len(value) :].unflatten(0, tangent.shape[:2]),)  # type: ignore[no-untyped-call]


class Heads:
    """Copies of one head with weights of their own, stacked along a first axis."""

    def __init__(self, cut: Split, count: int, device: str, *, dtype: torch.dtype | None = None) -> None:
        self.cut, self.parts = cut, cut.head_parts()
        self.count = count
        trained = cut.head_parameters()
        self.parameters = {
            name: parameter.detach().to(device, dtype).expand(count, *parameter.shape).clone().requires_grad_()
            for name, parameter in trained.items()
        }
        # Batch norm's statistics and the like are handed over too: the module itself stays where it is.
        known = {id(parameter) for parameter in trained.values()}
        tensors = [*cut.head.named_parameters(), *cut.head.named_buffers()]
        self.fixed = {
            name: tensor.detach().to(device, dtype if tensor.is_floating_point() else None)
            for name, tensor in tensors
            if id(tensor) not in known
        }

    def each(self, function: Callable[..., Any], *per_head: Tensor) -> Any:
        """Return ``function(head, *per_head)`` for every head, stacked along a first axis."""

        def call(parameters: dict[str, Tensor], *arguments: Tensor) -> Any:
            tensors = {**self.fixed, **parameters}
            return function(WeightedHead(self.parts, tensors), *arguments)

        if self.count > 1:
            return vmap(call, randomness="same")(self.parameters, *per_head)
        # squeeze, not index: its backward is a view, where a select would copy VGG-16's 411 MB
        only = {name: parameter.squeeze(0) for name, parameter in self.parameters.items()}
        return call(only, *(argument.squeeze(0) for argument in per_head)).unsqueeze(0)

    @torch.no_grad()
    def logits(self, features: Features, *, batch_size: int = 512) -> Tensor:
        """Return the logits of all images without dropout, ``(heads, n, classes)``."""
        self.cut.eval_mode()
        device = next(iter(self.parameters.values())).device
        parts = []
        for start in range(0, len(features), batch_size):
            values, _ = features.rows(slice(start, start + batch_size), str(device))
            parts.append(self.each(lambda head, values=values: head(*values)))
        return torch.cat(parts, dim=1).cpu()

    @torch.no_grad()
    def are_finite(self) -> list[bool]:
        """Say for every head whether all of its weights are numbers."""
        ends = [torch.stack(torch.aminmax(p.flatten(1), dim=1)) for p in self.parameters.values()]  # no copy is made
        return torch.isfinite(torch.cat(ends)).all(0).tolist()

    def state(self, number: int) -> dict[str, Tensor]:
        """Return the weights of one head under the original model's names."""
        return {name: parameter[number].detach().cpu().clone() for name, parameter in self.parameters.items()}


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A head after training with one strength."""

    strength: float
    state: dict[str, Tensor]
    is_finite: bool
    history: tuple[Any, ...]  # what the watch said after every epoch


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
    size = sum(4 * parameter.numel() for parameter in cut.head_parameters().values())
    together = max(1, _STACKED_BYTES // size)
    groups = [list(strengths[i : i + together]) for i in range(0, len(strengths), together)]
    steps = -(-len(features) // tuning.batch_size) * tuning.epochs
    ticks = progress(range(steps * len(groups)), total=steps * len(groups), label=label)
    for group in groups:
        heads = Heads(cut, len(group), tuning.device)
        history = _train_group(cut, heads, features, objective, group, tuning, watch, ticks)
        finite = heads.are_finite()
        for i, strength in enumerate(group):
            if not finite[i]:
                log.warning("%s: strength %g diverged.", label, strength)
            yield TrainedHead(strength, heads.state(i), finite[i], tuple(epoch[i] for epoch in history))


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
    weights = torch.tensor(strengths, dtype=torch.float32, device=tuning.device)
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[tuning.optimizer](
        heads.parameters.values(), lr=tuning.learning_rate
    )
    trunk, phi = (on_device(part, tuning.device) for part in (cut.trunk, cut.phi))
    history: list[Sequence[Any]] = []
    step = 0
    for epoch in range(tuning.epochs):
        cut.train_mode()
        for rows in _shuffled(len(features), tuning, epoch):
            with seeded(tuning.seed, step) as noise, exact_forward_mode(), _precision(tuning):
                values, tangents = features.rows(rows, tuning.device)
                labels = torch.from_numpy(features.labels[rows]).to(tuning.device)
                batch = HeadBatch(values, tangents, labels, rows, noise, trunk, phi)

                def loss(head: WeightedHead, strength: Tensor, batch: HeadBatch = batch) -> Tensor:
                    logits, penalty = objective.forward(head, batch)
                    wrong = nn.functional.cross_entropy(logits.float(), batch.labels)
                    return wrong if penalty is None else wrong + strength * penalty.float().mean()

                losses = heads.each(loss, weights)
            optimizer.zero_grad()
            losses.sum().backward()  # the heads share no weight, so each gets the gradient of its own loss
            optimizer.step()
            step += 1
            next(ticks, None)
        cut.eval_mode()
        if watch is not None:
            history.append(watch(heads))
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
