"""Train a whole model, with a checkpoint per epoch."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, Dataset

from hansfree._internal.files import written_atomically
from hansfree._internal.hashing import fingerprint, fingerprint_model, seeded
from hansfree._internal.progress import Progress, silent
from hansfree.activations import read_batches
from hansfree.corrections.training.head_loop import check_training, shuffled
from hansfree.data import Example, ImageDataset, InMemory
from hansfree.errors import CacheError, DivergedError, OptionError, check_choice

log = logging.getLogger(__name__)
_MAGIC = b"hansfree checkpoint\n"
_PARTS = ("model", "optimizer", "schedule")


@dataclass(frozen=True)
class Checkpoint:
    """A file with the state after the last whole epoch, and what it belongs to."""

    path: Path
    belongs_to: dict[str, str]

    def restore(self, *parts: Any) -> int:
        """Load model, optimizer and schedule from disk, where they are; return how many epochs are done."""
        state = self._read() if self.path.exists() else None
        if state is None:
            return 0
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
        content = BytesIO()
        torch.save({"belongs_to": self.belongs_to, "epoch": epoch, **states}, content)
        with written_atomically(self.path) as temporary:
            temporary.write_bytes(_MAGIC + _checksum(content) + content.getvalue())

    def _read(self) -> dict[str, Any] | None:
        """Return the stored state, or None if it is damaged: torch itself would load flipped bits."""
        with self.path.open("rb") as file:
            magic, expected, content = file.read(len(_MAGIC)), file.read(4), BytesIO(file.read())
        if magic != _MAGIC:
            raise CacheError(f"{str(self.path)!r} is not a checkpoint of a training. Remove it, or give another path.")
        if _checksum(content) != expected:
            log.warning("The checkpoint %s is damaged. The training starts anew.", self.path)
            return None
        return torch.load(content, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def _checksum(content: BytesIO) -> bytes:
    return zlib.crc32(content.getbuffer()).to_bytes(4, "big")


Optimizer = Literal["sgd", "adam"]


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """How a model is trained: cross-entropy on the images as they are, without augmentation (the paper names none).

    Args:
        milestones: the rate is divided by 10 after each of these epochs (App. A.3); None is a rate that falls to zero
            along a cosine, which needs fewer epochs from scratch.
        mixed_precision: bfloat16 in the forward pass; the weights stay float32.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 2e-3
    epochs: int = 10
    batch_size: int = 64
    milestones: tuple[int, ...] | None = None
    momentum: float = 0.0
    mixed_precision: bool = False
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, Optimizer)
        check_training(self, optimizer=self.optimizer, batch=2)
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

    Where `torch.distributed` is initialized, as by ``torchrun``, each process takes its part of every batch, and
    gradients and batch norm statistics are averaged; the first process writes the checkpoint.

    Args:
        workers: processes that read the images; the result is the same. A set in memory needs none.
        checkpoint: file that holds the whole state after every epoch: the same call resumes from it after a stop, and
            ends in the same weights. It is not deleted.
    """
    batches = len(data) // options.batch_size  # the last, short batch is left out: batch norm needs company
    if batches == 0:
        raise OptionError(f"{len(data)} images do not fill one batch of {options.batch_size}.")
    rank, world = process_place()
    if options.batch_size % world:
        raise OptionError(f"Batches of {options.batch_size} cannot be shared by {world} processes.")
    saved = None
    if checkpoint is not None:
        owner = {"first weights": fingerprint_model(model), "data": fingerprint(data.pixel_fingerprint)}
        saved = Checkpoint(checkpoint, {**owner, "options": repr(options)})
    try:
        model.train().to(options.device).to(memory_format=torch.channels_last)  # a fifth faster on CPUs
        optimizer: torch.optim.Optimizer
        if options.optimizer == "adam":
            optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=options.momentum)
        schedule: torch.optim.lr_scheduler.LRScheduler
        if (milestones := options.milestones) is None:
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, batches * options.epochs)
        else:
            schedule = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 0.1 ** sum(step // batches >= epoch for epoch in milestones)
            )
        done = saved.restore(model, optimizer, schedule) if saved else 0
        steps = range(done * batches, options.epochs * batches)
        read = _read(data, options, done, workers)
        for step, batch in progress(zip(steps, read), total=len(steps), label=label):
            images = batch.image.to(options.device).contiguous(memory_format=torch.channels_last)
            labels = torch.as_tensor(batch.label).to(options.device)
            precision = torch.autocast(images.device.type, torch.bfloat16) if options.mixed_precision else nullcontext()
            # dropout by step, so that a resumed training draws the same
            with seeded(options.seed, step * world + rank), precision:
                loss = nn.functional.cross_entropy(model(images).float(), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            _average([parameter.grad for parameter in model.parameters() if parameter.grad is not None], world)
            optimizer.step()
            schedule.step()
            epoch, rest = divmod(step + 1, batches)
            if rest:
                continue
            if not torch.isfinite(loss):
                raise DivergedError(f"{label}: the loss is {loss.item()} after epoch {epoch}. A lower rate may help.")
            _average([buffer for buffer in model.buffers() if buffer.is_floating_point()], world)
            if saved and rank == 0:
                saved.write(epoch, model, optimizer, schedule)
    finally:
        model.eval().to("cpu").to(memory_format=torch.contiguous_format)


def process_place() -> tuple[int, int]:
    """Return the number of this process and how many train together."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


@torch.no_grad()
def _average(tensors: Sequence[Tensor], world: int) -> None:
    """Replace tensors by their mean over all processes, in one message."""
    if world == 1 or not tensors:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    for tensor, mean in zip(tensors, torch.split(flat.div_(world), [tensor.numel() for tensor in tensors])):
        tensor.copy_(mean.view(tensor.shape))


def _read(data: ImageDataset, options: Pretraining, done: int, workers: int) -> Iterator[Example]:
    """Return this process's part of the batches of the epochs that are not done yet."""
    rank, world = process_place()
    order = (
        rows[rank::world].tolist()
        for epoch in range(done, options.epochs)
        for rows in shuffled(len(data), options.batch_size, (options.seed, epoch))
        if len(rows) == options.batch_size
    )
    if workers == 0 or isinstance(data, InMemory):
        return map(data.batch, order)
    return read_ahead(data, order, workers)


def read_ahead(data: Dataset[Any], rows: Iterable[list[int]], workers: int) -> Iterator[Any]:
    """Yield the batches of the rows, which other processes read."""
    generator = torch.Generator().manual_seed(0)  # else it would draw from the global one
    return read_batches(DataLoader(data, batch_sampler=rows, num_workers=workers, generator=generator))
