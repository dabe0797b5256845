"""The cache: every image goes through the frozen trunk once.

In memory, or on disk in shards: each is written atomically, so a killed pass resumes where it stopped, and read through
a memory map, so the process does not grow with the number of images. The folder's name is a hash of weights, data,
layer and preprocessing: another checkpoint can never meet the wrong cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler

from hansfree.activations.positions import Pooling, pool
from hansfree.activations.shards import (
    Shard,
    gather_shards,
    is_whole,
    join_facts,
    live_tensors,
    map_facts,
    shard_path,
    shard_ranges,
    write_shard,
)
from hansfree.datasets.base import Example
from hansfree.errors import CacheError, DataError, OptionError
from hansfree.files import write_json
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.progress import Progress, silent
from hansfree.splitting import Split, split

Precision = Literal["float32", "float16"]

_FORMAT = "1"  # part of the key: raise it when the content of a shard changes its meaning


@dataclass(frozen=True, eq=False)
class Activations:
    """A layer's output for every image of a set, with what is known about the images.

    ``pooled`` (n, channels) is what CAVs are fitted on; ``has_artifact`` is None when the data do not say.
    """

    layer: str
    pooling: Pooling
    pooled: np.ndarray
    labels: np.ndarray
    ids: np.ndarray
    has_artifact: np.ndarray | None
    shape: tuple[int, ...]  # of one image's activation, (channels, height, width)
    trunk: str  # fingerprint of the weights that they passed through
    traced: bool  # False: the model was cut by hooks, and the images are kept beside the activations
    shards: tuple[Shard | Path, ...]
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def stream(self, *, batch_size: int = 256) -> Iterator[tuple[Tensor, ...]]:
        """Yield the live tensors at the layer in order, as float32: the layer's output, then skip connections."""
        for shard in self.shards:
            tensors = live_tensors(shard)
            for start in range(0, len(tensors[0]), batch_size):
                yield tuple(tensor[start : start + batch_size].float() for tensor in tensors)


def collect_activations(
    model: nn.Module,
    layer: str,
    data: Dataset[Any] | DataLoader[Any],
    *,
    folder: Path | None = None,
    data_key: str | None = None,
    precision: Precision = "float32",
    pooling: Pooling = "max",
    batch_size: int = 64,
    device: str = "cpu",
    progress: Progress = silent,
) -> Activations:
    """Run every image through the model up to the layer, once.

    Args:
        data: A map-style dataset, or a ``DataLoader`` over one that does not shuffle. It yields
            :class:`~hansfree.datasets.Example`, ``(image, label)`` or ``(image, label, has_artifact)``.
        folder: Where to keep the cache on disk; None keeps it in memory.
        data_key: Says which data these are, for the cache on disk; datasets of hansfree know it themselves.
    """
    loader = _as_loader(data, batch_size)
    size: int = loader.batch_size or batch_size
    cut = split(model, layer, example=_unpack(next(iter(_batches(loader, [[0]]))), [0])[0])
    ranges = shard_ranges(len(loader.dataset), size)  # type: ignore[arg-type]
    home = None
    if folder is not None:
        home = folder / _key(model, layer, loader.dataset, data_key, precision, pooling)
        write_json(home / "about.json", {"layer": layer, "precision": precision, "pooling": pooling})
    todo = [rows for rows in ranges if home is None or not is_whole(shard_path(home, rows), rows)]

    batches = [list(rows[i : i + size]) for rows in todo for i in range(0, len(rows), size)]
    stream = progress(_batches(loader, batches), total=len(batches), label=f"activations at {layer}")
    outputs = _run_trunk(cut, zip(stream, batches), pooling=pooling, precision=precision, device=device)
    kept: list[Shard] = []
    for rows, shard in zip(todo, gather_shards(outputs, todo)):
        if home is None:
            kept.append(shard)
        else:
            write_shard(shard_path(home, rows), shard)

    shards: tuple[Shard | Path, ...] = tuple(kept) if home is None else tuple(shard_path(home, r) for r in ranges)
    paths = [shard for shard in shards if isinstance(shard, Path)]
    facts = join_facts(kept) if home is None else map_facts(home, paths, len(loader.dataset))  # type: ignore[arg-type]
    return Activations(
        layer=layer,
        pooling=pooling,
        pooled=facts["pooled"],
        labels=facts["labels"],
        ids=facts["ids"],
        has_artifact=facts.get("has_artifact"),
        shape=tuple(live_tensors(shards[0])[0].shape[1:]),
        trunk=_fingerprint_trunk(cut),
        traced=cut.traced,
        shards=shards,
        folder=home,
    )


def cut_again(model: nn.Module, activations: Activations) -> Split:
    """Cut a model where activations were taken; a model with another trunk than theirs is an error."""
    example = None if activations.traced else next(activations.stream(batch_size=1))[1]
    cut = split(model, activations.layer, example=example)
    if _fingerprint_trunk(cut) != activations.trunk:
        raise CacheError(
            f"These activations at {activations.layer!r} were not taken from this model: the weights up to the layer "
            "differ. Collect them again with collect_activations."
        )
    return cut


def _fingerprint_trunk(cut: Split) -> str:
    return fingerprint_model(cut.trunk, without=() if cut.traced else cut.trainable)


@torch.inference_mode()
def _run_trunk(
    cut: Split,
    batches: Iterable[tuple[Any, list[int]]],
    *,
    pooling: Pooling,
    precision: Precision,
    device: str,
) -> Iterator[Shard]:
    trunk = cut.trunk.to(device)
    for batch, rows in batches:
        images, labels, has_artifact, ids = _unpack(batch, rows)
        live = trunk(images.to(device))
        shard = {f"live{i}": tensor.to(getattr(torch, precision)) for i, tensor in enumerate(live)}
        if not all(torch.isfinite(tensor).all() for tensor in shard.values()):
            raise DataError(
                f"The activations at {cut.layer!r} are not finite in {precision} for some of the images {rows[0]} to "
                f"{rows[-1]}. Check the model's weights and the images, or use precision='float32'."
            )
        shard |= {"pooled": pool(live[0], pooling).float(), "labels": labels, "ids": ids}
        if has_artifact is not None:
            shard["has_artifact"] = has_artifact
        yield {name: tensor.cpu().contiguous() for name, tensor in shard.items()}


def _as_loader(data: Dataset[Any] | DataLoader[Any], batch_size: int) -> DataLoader[Any]:
    loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=batch_size)
    if not hasattr(loader.dataset, "__len__") or not hasattr(loader.dataset, "__getitem__"):
        raise DataError(f"{type(loader.dataset).__name__} must be a map-style dataset, with a length and an index.")
    if not isinstance(loader.sampler, SequentialSampler):
        raise DataError("The loader shuffles or samples; activations are kept in the order of the dataset.")
    if len(loader.dataset) == 0:
        raise DataError("There are no images in the dataset.")
    return loader


def _batches(loader: DataLoader[Any], batches: list[list[int]]) -> DataLoader[Any]:
    return DataLoader(
        loader.dataset, batch_sampler=batches, num_workers=loader.num_workers, collate_fn=loader.collate_fn
    )


def _unpack(batch: Any, rows: list[int]) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    if isinstance(batch, Example):
        facts = [torch.as_tensor(fact) for fact in (batch.label, batch.has_artifact, batch.id)]
        return batch.image, facts[0], facts[1], facts[2]
    if isinstance(batch, (tuple, list)) and len(batch) in (2, 3):
        has_artifact = torch.as_tensor(batch[2]).bool() if len(batch) == 3 else None
        return batch[0], torch.as_tensor(batch[1]), has_artifact, torch.tensor(rows)
    raise DataError(
        f"A dataset must yield Example, (image, label) or (image, label, has_artifact); got {type(batch).__name__}."
    )


def _key(
    model: nn.Module, layer: str, dataset: Any, data_key: str | None, precision: Precision, pooling: Pooling
) -> str:
    data = data_key or getattr(dataset, "fingerprint", None)
    if data is None:
        raise OptionError(
            f"{type(dataset).__name__} does not say which data it holds, so a cache on disk could be reused wrongly. "
            "Pass data_key='...' (a text that changes when the data change), or leave out folder."
        )
    return fingerprint(_FORMAT, fingerprint_model(model), layer, data, precision, pooling)
