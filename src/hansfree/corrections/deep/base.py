"""Corrections of the whole network: all layers are fine-tuned on images, from artifact labels alone."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree.corrections.base import Candidate, Correction
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import NoTransplantError, is_above_low_bits
from hansfree.corrections.training import Checkpoint, check_training
from hansfree.data import BiasedData
from hansfree.errors import DataError, DivergedError, OptionError

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
        mixed_precision: compute forward passes in bfloat16. ``"auto"`` does on GPUs that support it, unless the
            artifact is in the low bits of pixels, which bfloat16 rounds, or this cannot be measured.
    """

    learning_rate: float = 0.005
    momentum: float = 0.9
    epochs: int = 2
    batch_size: int = 32
    augment: bool = True
    seed: int = 0
    device: str = "cpu"
    workers: int = 0
    mixed_precision: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_training(self)
        if self.workers < 0:
            raise OptionError(f"workers={self.workers}: at least 0 is needed.")


class Objective(nn.Module, ABC):
    """The penalty of one training; its buffers are part of the checkpoint."""

    def draw(self, task_rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return the rows of further images that the penalty needs in one step, and a number for `terms`."""
        return np.zeros(0, dtype=np.int64), 0

    @abstractmethod
    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the step's task images, which come first, and the penalty."""


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
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=tuning.mixed_precision is True):
            logits, penalty = objective.terms(network, step, pixels)
        logits = logits.float() if tuning.mixed_precision is True else logits
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


def _has_bfloat16(device: str) -> bool:
    return torch.device(device).type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)  # else emulated


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


class DeepCorrection(Correction):
    """Fine-tunes a copy of the whole network; every strength starts from the original weights.

    A method overrides `objective`, and where needed `check`, `key` and `for_run`.
    """

    def __init__(self, *, strength: float = 1.0, tuning: NetworkTuning | None = None) -> None:
        super().__init__(strength=strength)
        self.tuning = tuning or NetworkTuning()

    @classmethod
    def for_run(cls, *, data: BiasedData, tuning: NetworkTuning) -> DeepCorrection:
        """Return the method as a run uses it."""
        return cls(tuning=tuning)

    @abstractmethod
    def objective(self, network: nn.Module, images: TrainingImages) -> Objective:
        """Return the penalty of one training, prepared on the network as it is before it."""

    def check(self, images: TrainingImages) -> None:
        """Raise DataError if these images are not usable."""
        shares = images.artifacts.mean(axis=0)
        if ((shares == 0) | (shares == 1)).any():
            raise DataError("Each artifact needs images with and without it.")
        images.task_weights()

    @final
    def candidates(
        self,
        model: nn.Module,
        data: Dataset[Any] | TrainingImages,
        strengths: Sequence[float] | None = None,
        *,
        folder: Path | None = None,
        progress: Progress = silent,
    ) -> Iterator[Candidate]:
        """Yield one corrected model per strength, each trained from the original weights.

        All parameters are trained, those that ``model`` has frozen too.

        Args:
            data: (image, label, has_artifact) with normalised images, as the model takes them, without random
                transforms.
            folder: the caller deletes the checkpoints.
        """
        images = TrainingImages.of(data, workers=self.tuning.workers)
        self.check(images)
        if any(each.dtype in (torch.float16, torch.bfloat16) for each in model.parameters()):
            raise OptionError("The model is in half precision. Give it in float32: `model.float()`.")
        for strength in self.info.strengths if strengths is None else strengths:
            checkpoint = None if folder is None else folder / f"{self.name}-{strength:g}.checkpoint"
            try:
                network = self._train(model, images, strength, checkpoint, progress)
            except (DivergedError, NoTransplantError) as error:
                yield Candidate(self.name, strength, error)
                continue
            yield Candidate(self.name, strength, lambda network=network: network)  # type: ignore[misc]

    def _train(
        self, model: nn.Module, images: TrainingImages, strength: float, checkpoint: Path | None, progress: Progress
    ) -> nn.Module:
        network, tuning = copy.deepcopy(model).eval().to(self.tuning.device), self.tuning
        if tuning.mixed_precision == "auto":
            is_mixed = _has_bfloat16(tuning.device) and is_above_low_bits(network, images)
            tuning = replace(tuning, mixed_precision=is_mixed)
        train_network(
            network,
            self.objective(network, images),
            images,
            tuning,
            strength,
            checkpoint=checkpoint,
            key=self.key(images),
            progress=progress,
            label=f"{self.name}, strength {strength:g}",
        )
        for own, other in zip(network.modules(), model.modules()):
            own.training = other.training
        for trained, parameter in zip(network.parameters(), model.parameters()):
            trained.requires_grad_(parameter.requires_grad)
            trained.grad = None
        return network.to(next(model.parameters()).device)

    def key(self, images: TrainingImages) -> str:
        """Return what a checkpoint belongs to, besides strength and tuning."""
        own = {name: value for name, value in vars(self).items() if name not in ("strength", "tuning")}
        return f"{self.name} {sorted(own.items())}"
