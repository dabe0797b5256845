"""The one loop that fine-tunes a whole network on images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.training import Checkpoint
from hansfree.errors import DivergedError, OptionError
from hansfree.models.surgery import check_device

MAX_GRADIENT = 2.0  # norm; the first steps of a strong penalty would otherwise diverge


@dataclass(frozen=True, kw_only=True)
class NetworkTuning:
    """How a whole network is fine-tuned: SGD with momentum and a one-cycle learning rate.

    Args:
        epochs: one epoch draws as many images for the task loss as have a weight above 0.
        batch_size: images of the task loss per step; the penalty adds its own.
        augment: flip images of the task loss horizontally and shift them by up to an eighth, at random. A network that
            has memorised its training images learns nothing new from them otherwise. Switch it off where left and right
            matter, as for text. Images of the penalty stay as they are: an artifact has its place.
        workers: processes that read images ahead; the result is the same.
    """

    learning_rate: float = 0.005
    momentum: float = 0.9
    epochs: int = 2
    batch_size: int = 32
    augment: bool = True
    seed: int = 0
    device: str = "cpu"
    workers: int = 0

    def __post_init__(self) -> None:
        check_device(self.device)
        if not self.learning_rate > 0 or not 0 <= self.momentum < 1:
            raise OptionError(
                f"learning_rate is {self.learning_rate} and momentum {self.momentum}; above 0, and from 0 to below 1."
            )
        if min(self.epochs, self.batch_size) < 1 or min(self.seed, self.workers) < 0:
            raise OptionError(
                f"epochs={self.epochs}, batch_size={self.batch_size}, seed={self.seed}, workers={self.workers}: at "
                "least 1, 1, 0 and 0 are needed."
            )


class Objective(nn.Module):
    """The penalty of one training; its buffers are part of the checkpoint."""

    def draw(self, task_rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return the rows of further images that the penalty needs in one step, and a number for `terms`."""
        return np.zeros(0, dtype=np.int64), 0

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the step's task images, which come first, and the penalty."""
        raise NotImplementedError


class Step(NamedTuple):
    """The images of one step: those of the task loss, those that the objective drew, and a number of its choice."""

    task_rows: np.ndarray
    extra_rows: np.ndarray
    choice: int


def train_network(
    network: nn.Module,
    objective: Objective,
    images: TrainingImages,
    tuning: NetworkTuning,
    strength: float,
    *,
    checkpoint: Path | None = None,
    key: str = "",
    progress: Progress = silent,
    label: str = "all layers",
) -> None:
    """Fine-tune all parameters in place: class-balanced task loss + strength x penalty.

    Batch norms keep their statistics and dropout is off: the network stays in eval mode.

    Args:
        checkpoint: file with the whole state after every epoch. The same call resumes from it and ends in the same
            weights.
        key: what else the checkpoint belongs to.
    """
    weights = images.task_weights()
    steps = -(-int((weights > 0).sum()) // tuning.batch_size)
    state = nn.ModuleDict({"network": network, "objective": objective}).to(tuning.device)
    saved = None
    if checkpoint is not None:
        owner = {
            "original weights": fingerprint_model(network),
            "images": images.fingerprint,
            "options": f"{key} {strength!r} {replace(tuning, workers=0, device='cpu')!r}",
        }
        saved = Checkpoint(checkpoint, owner)
    network.eval().to(memory_format=torch.channels_last)
    for parameter in network.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    optimizer = torch.optim.SGD(network.parameters(), lr=tuning.learning_rate, momentum=tuning.momentum)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, tuning.learning_rate, total_steps=steps * tuning.epochs, cycle_momentum=False
    )
    done = saved.restore(state, optimizer, schedule) if saved else 0
    plan = list(_plan(objective, weights, steps, tuning, done))
    read = images.batches([np.concatenate([step.task_rows, step.extra_rows]) for step in plan])
    for number, (step, batch) in enumerate(progress(zip(plan, read), total=len(plan), label=label), done * steps + 1):
        if tuning.augment:
            count = len(step.task_rows)
            rng = np.random.default_rng((tuning.seed, number))
            batch = torch.cat([flip_and_shift(batch[:count], rng), batch[count:]])
        pixels = batch.to(tuning.device).contiguous(memory_format=torch.channels_last)
        logits, penalty = objective.terms(network, step, pixels)
        labels = torch.as_tensor(images.labels[step.task_rows]).to(logits.device)
        loss = task_loss(logits, labels) + strength * penalty
        if not torch.isfinite(loss):
            raise DivergedError(f"{label}: the loss is {loss.item()} in step {number}. Use a smaller strength or rate.")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT)
        optimizer.step()
        schedule.step()
        if saved and number % steps == 0:
            saved.write(number // steps, state, optimizer, schedule)
    network.to("cpu").to(memory_format=torch.contiguous_format)


def flip_and_shift(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Flip each image horizontally with probability 1/2 and shift it by up to an eighth; edges are reflected."""
    height, width = images.shape[2:]
    rows, columns = height // 8, width // 8
    padded = nn.functional.pad(images, (columns, columns, rows, rows), mode="reflect")
    tops, lefts = rng.integers(2 * rows + 1, size=len(images)), rng.integers(2 * columns + 1, size=len(images))
    is_flipped = rng.random(len(images)) < 0.5
    changed = torch.empty_like(images)
    for index, (top, left) in enumerate(zip(tops, lefts)):
        window = padded[index, :, top : top + height, left : left + width]
        changed[index] = window.flip(2) if is_flipped[index] else window
    return changed


def task_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of classes, of one logit for a binary label, or of rows of labels."""
    if labels.ndim == 2:
        return nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits))
    if logits.ndim == 1 or logits.shape[1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(logits.reshape(-1), labels.to(logits))
    return nn.functional.cross_entropy(logits, labels.long())


def _plan(objective: Objective, weights: np.ndarray, steps: int, tuning: NetworkTuning, done: int) -> Iterator[Step]:
    """Yield every step that is left."""
    for epoch in range(done, tuning.epochs):
        rng = np.random.default_rng((tuning.seed, epoch))
        drawn = _systematic_sample(weights, steps * tuning.batch_size, rng)
        for step in range(steps):
            task_rows = drawn[step * tuning.batch_size : (step + 1) * tuning.batch_size]
            yield Step(task_rows, *objective.draw(task_rows, rng))


def _systematic_sample(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows in proportion to their weights; each appears its expected number of times, rounded up or down."""
    order = rng.permutation(len(weights))
    places = (np.arange(count) + rng.random()) / count
    drawn = order[np.searchsorted(np.cumsum(weights[order]), places * weights.sum(), side="right")]
    sampled: np.ndarray = rng.permutation(drawn)
    return sampled
