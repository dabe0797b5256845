"""Train a whole model, with a checkpoint per epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from hansfree._internal.files import written_atomically
from hansfree._internal.hashing import fingerprint, fingerprint_model, seeded
from hansfree._internal.progress import Progress, silent
from hansfree.data import Example, ImageDataset, InMemory
from hansfree.errors import CacheError, DivergedError, OptionError, check_choice
from hansfree.models.surgery import check_device

_PARTS = ("model", "optimizer", "schedule")


@dataclass(frozen=True)
class Checkpoint:
    """A file with the state after the last whole epoch, and what it belongs to."""

    path: Path
    belongs_to: dict[str, str]

    @classmethod
    def of(cls, path: Path, model: nn.Module, data: ImageDataset, options: object) -> Checkpoint:
        """Return the checkpoint of training ``model``, as it is now, on the data; ``options`` count by their repr."""
        return cls(
            path,
            {
                "first weights": fingerprint_model(model),
                "data": fingerprint(data.pixel_fingerprint),
                "options": repr(options),
            },
        )

    def restore(self, *parts: Any) -> int:
        """Load model, optimizer and schedule from disk, where they are; return how many epochs are done."""
        if not self.path.exists():
            return 0
        state = self._read()
        for owner, here in self.belongs_to.items():
            if (there := state["belongs_to"].get(owner)) != here:
                raise CacheError(
                    f"The checkpoint {str(self.path)!r} belongs to a training with other {owner}: {there}, here "
                    f"{here}. Remove it to start anew, or give another path."
                )
        for name, part in zip(_PARTS, parts):
            part.load_state_dict(state[name])
        return int(state["epoch"])

    def write(self, epoch: int, *parts: Any) -> None:
        """Store the state of model, optimizer and schedule after so many epochs."""
        states = {name: part.state_dict() for name, part in zip(_PARTS, parts)}
        with written_atomically(self.path) as temporary:
            torch.save({"belongs_to": self.belongs_to, "epoch": epoch, **states}, temporary)

    def _read(self) -> dict[str, Any]:
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes can end the unpickler in any kind of error
            raise CacheError(f"The checkpoint {str(self.path)!r} cannot be read ({error}). Remove it.") from error
        if not isinstance(state, dict) or "belongs_to" not in state:
            raise CacheError(f"{str(self.path)!r} is not a checkpoint of a training. Give another path.")
        return state


Optimizer = Literal["sgd", "adam"]


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """How a model is trained: cross-entropy on the images as they are, without augmentation (the paper names none).

    Args:
        milestones: the rate is divided by 10 after each of these epochs (App. A.3); None is a rate that falls to zero
            along a cosine, which needs fewer epochs from scratch.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 2e-3
    epochs: int = 10
    batch_size: int = 64
    milestones: tuple[int, ...] | None = None
    momentum: float = 0.0
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise for values that cannot train."""
        check_choice("optimizer", self.optimizer, Optimizer)
        check_device(self.device)
        if not self.learning_rate > 0 or self.epochs < 1 or self.batch_size < 2 or self.seed < 0:
            raise OptionError(
                f"{self}: the rate must be above 0, epochs at least 1, a batch at least 2, and the seed at least 0."
            )
        if not 0 <= self.momentum < 1 or (self.momentum and self.optimizer != "sgd"):
            raise OptionError(f"momentum is {self.momentum}; from 0 to below 1, and for optimizer='sgd' only.")
        after = self.milestones or ()
        if min(after, default=1) < 1 or list(after) != sorted(set(after)):
            raise OptionError(f"milestones are {after}; rising numbers of epochs are needed, from 1 up.")


def pretrain(
    model: nn.Module,
    data: ImageDataset,
    options: Pretraining,
    *,
    workers: int = 0,
    checkpoint: Path | None = None,
    progress: Progress = silent,
    label: str = "training",
) -> None:
    """Train ``model`` in place; it is in eval mode afterwards.

    Args:
        workers: processes that read the images; the result is the same. A set in memory needs none.
        checkpoint: file that holds the whole state after every epoch: the same call resumes from it after a stop, and
            ends in the same weights. It is not deleted.
    """
    batches = len(data) // options.batch_size  # the last, short batch is left out: batch norm needs company
    if batches == 0:
        raise OptionError(f"{len(data)} images do not fill one batch of {options.batch_size}.")
    saved = Checkpoint.of(checkpoint, model, data, options) if checkpoint else None
    try:
        model.train().to(options.device).to(memory_format=torch.channels_last)  # a fifth faster on CPUs
        optimizer: torch.optim.Optimizer
        if options.optimizer == "adam":
            optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=options.momentum)
        schedule = _schedule(optimizer, options.milestones, batches, options.epochs)
        done = saved.restore(model, optimizer, schedule) if saved else 0
        steps = range(done * batches, options.epochs * batches)
        read = _read(data, _order(len(data), options, done), workers)
        for step, batch in progress(zip(steps, read), total=len(steps), label=label):
            images = batch.image.to(options.device).contiguous(memory_format=torch.channels_last)
            with seeded(options.seed, step):  # dropout; by step, so that a resumed training draws the same
                loss = nn.functional.cross_entropy(model(images), torch.as_tensor(batch.label).to(options.device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            epoch, rest = divmod(step + 1, batches)
            if rest:
                continue
            if not torch.isfinite(loss):
                raise DivergedError(f"{label}: the loss is {loss.item()} after epoch {epoch}. A lower rate may help.")
            if saved:
                saved.write(epoch, model, optimizer, schedule)
    finally:
        model.eval().to("cpu").to(memory_format=torch.contiguous_format)


def _schedule(
    optimizer: torch.optim.Optimizer, milestones: tuple[int, ...] | None, batches: int, epochs: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the schedule, which steps after every batch."""
    if milestones is None:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, batches * epochs)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.1 ** sum(step // batches >= epoch for epoch in milestones)
    )


def _order(images: int, options: Pretraining, done: int) -> Iterator[list[int]]:
    """Yield the rows of every batch of the epochs that are not done yet."""
    for epoch in range(done, options.epochs):
        order = np.random.default_rng((options.seed, epoch)).permutation(images)
        for start in range(0, images - options.batch_size + 1, options.batch_size):
            yield order[start : start + options.batch_size].tolist()


def _read(data: ImageDataset, order: Iterator[list[int]], workers: int) -> Iterator[Example]:
    if workers == 0 or isinstance(data, InMemory):
        return map(data.batch, order)
    generator = torch.Generator().manual_seed(0)  # else it would draw from the global one
    return iter(DataLoader(data, batch_sampler=order, num_workers=workers, generator=generator))
