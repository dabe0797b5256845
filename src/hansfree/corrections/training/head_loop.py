"""Fine-tune heads: options, class weights and the loss; many heads at once, one for each strength."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap
from torch.nn import functional

from hansfree._internal.hashing import seeded
from hansfree._internal.progress import Progress, silent
from hansfree.activations import Features, Live
from hansfree.corrections.base import Need
from hansfree.corrections.training.large_head import Span
from hansfree.errors import OptionError, check_choice
from hansfree.metrics import predict_classes
from hansfree.models.surgery import (
    Cut,
    HeadParts,
    Stage,
    check_device,
    exact_forward_mode,
    fuse_for_inference,
    on_device,
)

if TYPE_CHECKING:
    from hansfree.corrections.latent import LatentCorrection


def balanced_weights(groups: np.ndarray) -> np.ndarray:
    """Return what each image counts, 1 on average, so that all groups that have images count the same.

    Examples:
        >>> balanced_weights(np.array([0, 0, 0, 1])).round(2).tolist()
        [0.67, 0.67, 0.67, 2.0]
    """
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights: np.ndarray = len(groups) / (len(counts) * counts[place])
    return weights


def mean_loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """Return the cross-entropy; with ``weights`` as a mean of what each image counts."""
    if weights is None:
        return nn.functional.cross_entropy(logits, labels)
    return (nn.functional.cross_entropy(logits, labels, reduction="none") * weights).mean()


Optimizer = Literal["sgd", "adam", "converged"]


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How a head is fine-tuned; the defaults are the paper's recipe (App. A.3).

    ``optimizer="converged"`` is the minimum itself, with L2 of weight ``anchor`` towards the model's own head; rate,
    epochs, batches and seed are then not used. ``balanced`` lets every class count the same in the loss. ``stable``
    shortens steps of SGD that would diverge, as `hansfree run` does. ``momentum`` is SGD's; the published code has 0.9.
    """

    optimizer: Optimizer = "sgd"
    learning_rate: float = 1e-4
    epochs: int = 10
    batch_size: int = 32
    seed: int = 0
    device: str = "cpu"
    anchor: float = 1e-2
    balanced: bool = False
    stable: bool = False
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, Optimizer)
        check_training(self, optimizer=self.optimizer)
        if not self.anchor > 0:
            raise OptionError(f"anchor is {self.anchor}; it must be above 0, or the minimum may lie at infinity.")


def check_momentum(momentum: float, optimizer: str) -> None:
    """Raise for a momentum that SGD does not take, or that another optimizer would ignore."""
    if not 0 <= momentum < 1 or (momentum and optimizer != "sgd"):
        raise OptionError(f"momentum is {momentum}; from 0 to below 1, and for optimizer='sgd' only.")


def check_training(tuning: Any, *, optimizer: str = "sgd", batch: int = 1) -> None:
    """Raise for a device, a rate, a momentum or numbers that cannot train; a batch has at least ``batch`` images."""
    check_device(tuning.device)
    if not tuning.learning_rate > 0:
        raise OptionError(f"learning_rate is {tuning.learning_rate}; it must be above 0.")
    check_momentum(tuning.momentum, optimizer)
    for name, least in (("epochs", 1), ("batch_size", batch), ("seed", 0)):
        if (given := getattr(tuning, name)) < least:
            raise OptionError(f"{name}={given}: at least {least} is needed.")


class FunctionalHead:
    """A head with weights of its own: the head's inputs -> logits."""

    def __init__(self, parts: HeadParts, tensors: dict[str, Tensor]) -> None:
        self._parts, self._tensors = parts, tensors

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits."""
        return functional_call(self._parts.whole, self._tensors, inputs)  # type: ignore[no-any-return]

    def push(self, values: Live, tangents: Live) -> tuple[Tensor, Tensor]:
        """Return the logits, and their derivatives ``(k, n, classes)`` along tangents ``(k, n, ...)``.

        A linear layer takes values and tangents together: one product and one gradient of its weight instead of two.
        """
        for stage in self._parts.stages:
            if stage.path is None:
                values, tangents = push(lambda *inputs, stage=stage: (self._run(stage, *inputs),), values, tangents)
                continue
            (value, *rest), (tangent, *rest_along) = values, tangents  # the rest is of a `SpannedHead`
            weight, bias = self._linear(stage)
            rows = functional.linear(torch.cat([value, tangent.flatten(0, 1)]), weight)
            along = rows[len(value) :].unflatten(0, tangent.shape[:2])  # type: ignore[no-untyped-call]
            values, tangents = (sum(rest, rows[: len(value)] + bias),), (sum(rest_along, along),)
        return values[0], tangents[0]

    def finite_step(self, values: Live, steps: Live) -> tuple[Tensor, Tensor]:
        """Return the logits, and those ``(k, n, classes)`` after whole steps ``(k, n, ...)``, with one dropout mask."""
        moved = []
        for step in zip(*steps):
            with torch.random.fork_rng():
                moved.append(self(*map(torch.add, values, step)))
        return self(*values), torch.stack(moved)

    def _linear(self, stage: Stage) -> tuple[Tensor, Tensor | float]:
        return self._tensors[f"{stage.path}.weight"], self._tensors.get(f"{stage.path}.bias", 0.0)

    def _run(self, stage: Stage, *inputs: Tensor) -> Tensor:
        if stage.path is not None:
            weight, bias = self._linear(stage)
            return functional.linear(inputs[0], weight) + bias
        own = [name for name, _ in (*stage.module.named_parameters(), *stage.module.named_buffers())]
        tensors = {name: self._tensors[name] for name in own}
        return functional_call(stage.module, tensors, inputs)  # type: ignore[no-any-return]


class SpannedHead(FunctionalHead):
    """A head whose inputs are given by a `Span`: coordinates, and what the untrained first layer makes of the rest."""

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits."""
        first, *others = self._parts.stages
        coordinates, rest = inputs
        value = self._run(first, coordinates) + rest
        for stage in others:
            value = self._run(stage, value)
        return value


def push(function: Callable[..., Live], values: Live, tangents: Live) -> tuple[Live, Live]:
    """Return what a function makes of values, and of tangents ``(k, n, ...)`` along with them."""

    def along(*tangent: Tensor) -> tuple[Live, Live]:
        return jvp(function, values, tangent)  # type: ignore[return-value]

    if len(tangents[0]) == 1:
        outputs, pushed = along(*(tangent[0] for tangent in tangents))
        return outputs, tuple(each[None] for each in pushed)
    outputs, pushed = vmap(along, randomness="same")(*tangents)  # one dropout mask for all directions
    return tuple(each[0] for each in outputs), pushed


class Heads:
    """Copies of one head with weights of their own, stacked along a first axis.

    Args:
        span: Stores the first layer's weight in the coordinates of what the training images span.
    """

    def __init__(
        self, cut: Cut, count: int, device: str, *, dtype: torch.dtype | None = None, span: Span | None = None
    ) -> None:
        self.cut, self.parts, self.span, self.count = cut, cut.head_parts(), span, count
        self._kind = FunctionalHead if span is None else SpannedHead
        trained = dict(cut.head_parameters())
        self.parameters = {
            name: parameter.detach().to(device, dtype).expand(count, *parameter.shape).clone().requires_grad_()
            for name, parameter in (trained if span is None else trained | {span.name: span.start}).items()
        }
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
            return function(self._kind(self.parts, {**self.fixed, **parameters}), *arguments)

        if self.count > 1:
            return vmap(call, randomness="same")(self.parameters, *per_head)
        # squeeze, not index: its backward is a view, where a select would copy VGG-16's 411 MB
        only = {name: parameter.squeeze(0) for name, parameter in self.parameters.items()}
        return call(only, *(argument.squeeze(0) for argument in per_head)).unsqueeze(0)

    @torch.no_grad()
    def stream(self, features: Features, *, batch_size: int = 512) -> Iterator[Tensor]:
        """Yield the logits of all images without dropout, ``(heads, rows, classes)``, batch by batch."""
        self.cut.eval_mode()
        for start in range(0, len(features), batch_size):
            values, _ = self.rows(features, slice(start, start + batch_size))
            yield self.each(lambda head, values=values: head(*values)).cpu()

    def logits(self, features: Features, *, batch_size: int = 512) -> Tensor:
        """Return the logits of all images."""
        return torch.cat([*self.stream(features, batch_size=batch_size)], dim=1)

    def predictions(self, features: Features) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicted classes ``(heads, n)``, and of each head whether all of its logits are finite.

        Of many heads on many images, the logits of one batch are in memory at a time.
        """
        found, finite = [np.zeros((self.count, 0), dtype=np.int32)], np.ones(self.count, dtype=bool)
        for logits in self.stream(features):
            found.append(np.stack([predict_classes(each) for each in logits.numpy()]).astype(np.int32))
            finite &= torch.isfinite(logits).flatten(1).all(1).numpy()
        return np.concatenate(found, axis=1), finite

    def rows(self, features: Features, index: np.ndarray | slice) -> tuple[Live, Live]:
        """Return values and tangents of some images as these heads take them."""
        seen = features if self.span is None else self.span.written(features)
        return seen.rows(index, str(next(iter(self.parameters.values())).device))

    @torch.no_grad()
    def are_finite(self) -> list[bool]:
        """Say for every head whether all of its weights are numbers."""
        ends = [torch.stack(torch.aminmax(p.flatten(1), dim=1)) for p in self.parameters.values()]  # no copy is made
        return torch.isfinite(torch.cat(ends)).all(0).tolist()

    def state(self, number: int) -> dict[str, Tensor]:
        """Return the weights of one head under the original model's names."""
        weights = {name: parameter[number].detach() for name, parameter in self.parameters.items()}
        if self.span is not None:
            weights[self.span.name] = self.span.whole(weights[self.span.name])
        return {name: tensor.cpu().clone() for name, tensor in weights.items()}


log = logging.getLogger(__name__)
Watch = Callable[[Heads], Sequence[Any]]  # called after every epoch: one entry per head
MAX_CHANGE = 0.1  # of the weights' norm, in one step


_STACKED_BYTES = 64 * 2**20  # heads are trained together while their weights stay below this


@dataclass(frozen=True, eq=False)
class HeadBatch:
    """Some images at the head's input."""

    values: Live
    tangents: Live  # (k, rows, ...): derivatives or steps along k directions, or the change to the counterfactual
    labels: Tensor
    rows: np.ndarray  # which images of the set
    noise: torch.Generator  # for what a method samples; the same for all strengths
    trunk: nn.Module
    phi: nn.Module  # from the layer to the head's input


class SolverSupport(Enum):
    """Whether a head can be trained to convergence with a penalty."""

    NONE = "none"  # the penalty is sampled, or needs more than the head's inputs
    SMOOTH = "smooth"
    QUADRATIC = "quadratic"  # it is the squared change of `LatentCorrection.outputs` along the tangents


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A head after training with one strength."""

    strength: float
    make_state: Callable[[], dict[str, Tensor]]
    is_finite: bool
    history: tuple[Any, ...]  # what the watch said after every epoch

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """The weights under the model's names, made on first use."""
        return self.make_state()


def train_heads(
    cut: Cut,
    features: Features,
    objective: LatentCorrection,
    strengths: Sequence[float],
    *,
    watch: Watch | None = None,
    progress: Progress = silent,
    label: str,
) -> Iterator[TrainedHead]:
    """Fine-tune one head per strength from the model's own head, yielded in order as soon as a group is done."""
    tuning, span = objective.tuning, None
    if _reads_features(objective, features) and tuning.optimizer == "sgd":  # Adam's steps depend on the axes
        span = Span.where_smaller(cut, features, tuning.device)
    if span is not None:
        span.written(features)  # once, and before the progress starts
    groups, failed = group_strengths(cut, strengths, tuning), dict[float, str]()
    steps = -(-len(features) // tuning.batch_size) * tuning.epochs
    ticks = progress(range(steps * len(groups)), total=steps * len(groups), label=label)
    for group in groups:
        heads = Heads(cut, len(group), tuning.device, span=span)
        history = _train_group(heads, features, objective, group, watch, ticks)
        finite = heads.are_finite()
        failed |= {strength: "" for strength, is_finite in zip(group, finite) if not is_finite}
        if group is groups[-1]:  # before the last yield: the caller may stop there
            warn_of_strengths(f"{label} diverged", objective, failed)
        for i, strength in enumerate(group):
            yield TrainedHead(strength, partial(heads.state, i), finite[i], tuple(epoch[i] for epoch in history))


def _reads_features(objective: LatentCorrection, features: Features) -> bool:
    """Return whether the loss follows from the head's outputs for the features and for sums of them."""
    return not features.at_layer and Need.MASKS not in objective.info.needs


def group_strengths(cut: Cut, strengths: Sequence[float], tuning: FineTuning) -> list[list[float]]:
    """Return which strengths are trained together; no group needs another, so each gives the same by itself."""
    if tuning.optimizer == "converged":
        return [list(strengths)]  # each starts from the solution of the one before
    size = sum(4 * parameter.numel() for parameter in cut.head_parameters().values())
    together = max(1, _STACKED_BYTES // size)
    return [list(strengths[i : i + together]) for i in range(0, len(strengths), together)]


def warn_of_strengths(what: str, objective: LatentCorrection, found: Mapping[float, str]) -> None:
    """Warn once of all strengths at which something happened, each with a remark; nothing is logged for none."""
    if found:
        places = [f"{strength:g}{remark}" for strength, remark in found.items()]
        where = f" at strength {', '.join(places)}" if objective.info.has_strength else "".join(found.values())
        log.warning("%s%s.", what, where)


def image_weights(features: Features, tuning: FineTuning) -> Tensor | None:
    """Return what each image counts in the loss; None where all count the same."""
    return torch.from_numpy(balanced_weights(features.labels)).float().to(tuning.device) if tuning.balanced else None


def _train_group(
    heads: Heads,
    features: Features,
    objective: LatentCorrection,
    strengths: Sequence[float],
    watch: Watch | None,
    ticks: Iterator[int],
) -> list[Sequence[Any]]:
    cut, tuning = heads.cut, objective.tuning
    by_head = torch.tensor(strengths, dtype=torch.float32, device=tuning.device)
    optimizer: torch.optim.Optimizer
    if tuning.optimizer == "adam":
        optimizer = torch.optim.Adam(heads.parameters.values(), lr=tuning.learning_rate)
    else:
        optimizer = torch.optim.SGD(heads.parameters.values(), lr=tuning.learning_rate, momentum=tuning.momentum)
    trunk, phi = (on_device(part, tuning.device) for part in (cut.trunk, cut.phi))
    if not _reads_features(objective, features):
        trunk = fuse_for_inference(trunk)
    counts = image_weights(features, tuning)
    history: list[Sequence[Any]] = []
    step = 0
    for epoch in range(tuning.epochs):
        cut.train_mode()
        for rows in shuffled(len(features), tuning.batch_size, (tuning.seed, epoch)):
            with seeded(tuning.seed, step) as noise, exact_forward_mode():
                values, tangents = heads.rows(features, rows)
                labels = torch.from_numpy(features.labels[rows]).to(tuning.device)
                batch = HeadBatch(values, tangents, labels, rows, noise, trunk, phi)

                def loss(head: FunctionalHead, strength: Tensor, batch: HeadBatch = batch) -> Tensor:
                    logits, penalty = objective.loss_terms(head, batch)
                    each = None if counts is None else counts[batch.rows]
                    wrong = mean_loss(logits, batch.labels, each)
                    return wrong if penalty is None else wrong + strength * penalty.mean()

                losses = heads.each(loss, by_head)
            optimizer.zero_grad()
            losses.sum().backward()  # the heads share no weight, so each gets the gradient of its own loss
            if tuning.stable and tuning.optimizer == "sgd":
                rate = tuning.learning_rate / (1 - tuning.momentum)  # equal gradients add up to that
                limit_steps(heads, objective, tangents, by_head, rate)
            optimizer.step()
            step += 1
            next(ticks, None)
        cut.eval_mode()
        if watch is not None:
            history.append(watch(heads))
    optimizer.zero_grad()
    return history


@torch.no_grad()
def limit_steps(
    heads: Heads, objective: LatentCorrection, tangents: Live, strengths: Tensor, learning_rate: float
) -> None:
    """Shrink the gradients of heads whose step of SGD would be too long; others stay as they are.

    A quadratic penalty on one linear layer has a known curvature, and a step of at most its inverse never overshoots.
    Any head changes by at most `MAX_CHANGE` of its weights' norm.
    """
    gradients = [parameter.grad for parameter in heads.parameters.values() if parameter.grad is not None]
    if heads.parts.is_linear and tangents and objective.solver is SolverSupport.QUADRATIC:
        outputs = next(iter(heads.parameters.values())).shape[1]
        gain = torch.linalg.matrix_norm(objective.outputs(torch.eye(outputs, device=strengths.device)), 2).square()
        size = tangents[0].flatten(2).square().sum((0, 2)).mean()
        _shrink(gradients, 1 / (2 * learning_rate * strengths * gain * size))
    squared = _norms(heads.parameters.values()).square() + (0 if heads.span is None else heads.span.outside)
    _shrink(gradients, MAX_CHANGE * squared.sqrt() / (learning_rate * _norms(gradients)))


def _shrink(gradients: Sequence[Tensor], factors: Tensor) -> None:
    """Multiply each head's gradients by its factor, if that is below 1."""
    limited = factors.nan_to_num(1.0).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(limited.view(-1, *[1] * (gradient.ndim - 1)))


def _norms(tensors: Iterable[Tensor]) -> Tensor:
    """Return the norm of all weights of each head together."""
    norms: Tensor = torch.linalg.vector_norm(torch.stack([tensor.flatten(1).norm(dim=1) for tensor in tensors]), dim=0)
    return norms


def shuffled(images: int, batch_size: int, seed: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yield the rows of each batch, in random order; the last one may be short."""
    order = np.random.default_rng(seed).permutation(images)
    for start in range(0, images, batch_size):
        yield order[start : start + batch_size]
