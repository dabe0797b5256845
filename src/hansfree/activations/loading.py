"""Images into the cache: each of a dataset's images once, in its order, with what is known about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from hansfree.data import Example, dataset_of
from hansfree.errors import DataError, HansfreeError

WORKER_DIED = (
    "A process that reads images died: most often memory ran out, or a file made its decoder crash. Use fewer workers; "
    "with none (workers: 0) the file shows itself."
)


class Batch(NamedTuple):
    """Consecutive images; ``has_artifact`` is None when the data do not say."""

    images: Tensor
    labels: Tensor
    has_artifact: Tensor | None
    ids: Tensor


def as_loader(data: Dataset[Any] | DataLoader[Any], batch_size: int) -> DataLoader[Any]:
    """Return a loader over the data; one that would not give every image in the dataset's order is refused."""
    dataset_of(data)
    loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=batch_size)
    if loader.batch_sampler is None:
        raise DataError("The loader has batch_size=None; give it a batch size, and a dataset of single images.")
    sampler = loader.batch_sampler  # a loader that is given one has a sequential `sampler` of its own all the same
    if type(sampler) is not BatchSampler or not isinstance(sampler.sampler, SequentialSampler):
        raise DataError("The loader shuffles or samples; activations are kept in the order of the dataset.")
    return loader


def load_batches(loader: DataLoader[Any], batches: list[list[int]], *, in_process: bool = False) -> DataLoader[Any]:
    """Return a loader of just these rows that works as the given one does."""
    workers = 0 if in_process else loader.num_workers
    return DataLoader(
        loader.dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if workers else None,
        generator=torch.Generator().manual_seed(0),  # else every pass would draw from the global one
    )


def read_batches(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield a loader's batches; an error in a worker is raised without the worker's traceback."""
    try:
        yield from loader
    except Exception as error:  # a dataset may raise anything
        if is_worker_death(error):
            raise DataError(WORKER_DIED) from error
        if loader.num_workers == 0 or not str(error).startswith("Caught "):
            raise
        name, _, sentence = str(error).rstrip().splitlines()[-1].partition(": ")  # of the original error
        if isinstance(error, HansfreeError):
            raise type(error)(sentence) from error
        raise DataError(f"A process that reads images failed with {name}: {sentence}") from error


def is_worker_death(error: BaseException) -> bool:
    """Return whether an error says that a reading process is gone; torch raises it wherever the main one is."""
    return isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker (pid")


def unpack(batch: Any, rows: list[int]) -> Batch:
    """Return what a collated batch says about these rows of the dataset."""
    has_artifact: Any = None
    ids: Any = torch.tensor(rows)
    if isinstance(batch, Example):
        images, labels, has_artifact, _, ids = batch
    elif isinstance(batch, (tuple, list)) and len(batch) in (2, 3):
        images, labels = batch[:2]
        has_artifact = batch[2] if len(batch) == 3 else None
    else:
        raise DataError(
            f"A dataset must yield Example, (image, label) or (image, label, has_artifact); got {type(batch).__name__}."
        )
    if not isinstance(images, Tensor):
        raise DataError(f"The images must be tensors, not {type(images).__name__}.")
    numbers = _numbers("labels", labels)
    if numbers.is_floating_point():
        raise DataError(f"The labels must be whole numbers, one class per image, not {numbers.dtype}.")
    bits = None if has_artifact is None else _numbers("has_artifact", has_artifact)
    if bits is not None and bits.dtype != torch.bool:
        if not torch.isin(bits, torch.tensor([0, 1], dtype=bits.dtype)).all():  # an index, for example
            raise DataError(
                "The third of (image, label, has_artifact) must be true or false, 1 or 0, for each image; "
                f"got {bits.flatten()[:8].tolist()}."
            )
        bits = bits.bool()
    found = Batch(images, numbers, bits, _numbers("ids", ids))
    for name, tensor in zip(found._fields, found):
        if tensor is not None and tuple(tensor.shape[: 1 if name == "images" else None]) != (len(rows),):
            raise DataError(
                f"For the images {rows[0]} to {rows[-1]} the data give {name} of shape {tuple(tensor.shape)}, not one "
                f"for each of {len(rows)}."
            )
    return found


def _numbers(name: str, values: Any) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"The {name} must be numbers, not {values!r:.80}.") from None
