"""The pass that fills a cache: planned first, then done shard by shard, by whoever comes to it.

A shard depends on nothing but its own images, so any process that plans the same pass may make any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hansfree.activations.loading import as_loader, load_batches, read_batches, unpack
from hansfree.activations.positions import Pooling, pool
from hansfree.activations.shards import (
    Shard,
    gather_shards,
    is_whole,
    live_name,
    shard_path,
    shard_ranges,
    write_shard,
)
from hansfree.errors import DataError, OptionError, SplitError, check_choice
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.progress import Progress, silent
from hansfree.splitting import Split, check_device, folded, overwriting, split

Precision = Literal["float32", "float16"]

_FORMAT = "2"  # part of the key: raise it when the content of a shard changes its meaning


@dataclass(frozen=True, eq=False, kw_only=True)
class CachePass:
    """All images of a set on their way to a layer: into which shards, and how each is made."""

    cut: Split
    loader: DataLoader[Any]
    batch_size: int
    trunk: str  # fingerprint of the weights that the images pass through
    home: Path | None  # of the shards; None keeps them in memory
    pooling: Pooling
    precision: Precision
    device: str
    label: str  # what the progress is called

    @property
    def images(self) -> int:
        """How many images pass."""
        return len(self.loader.dataset)  # type: ignore[arg-type]

    @property
    def ranges(self) -> list[range]:
        """The images of each shard."""
        return shard_ranges(self.images, self.batch_size)

    def missing(self) -> list[range]:
        """Return the images of all shards that are not on disk yet."""
        return [rows for rows in self.ranges if self.home is None or not is_whole(shard_path(self.home, rows), rows)]

    def make(self, todo: Sequence[range], *, progress: Progress = silent) -> Iterator[Shard]:
        """Run the images of some shards up to the layer; on disk or in memory, the batches are the same."""
        size = self.batch_size
        batches = [list(rows[i : i + size]) for rows in todo for i in range(0, len(rows), size)]
        images = load_batches(self.loader, batches, in_process=not batches)
        stream = progress(read_batches(images), total=len(batches), label=self.label)
        return gather_shards(self._run_trunk(zip(stream, batches)), todo)

    def fill(self, home: Path, todo: Sequence[range], *, progress: Progress = silent) -> None:
        """Make some shards and write each atomically."""
        for shard, rows in zip(self.make(todo, progress=progress), todo):
            write_shard(shard_path(home, rows), shard)

    def _run_trunk(self, batches: Iterable[tuple[Any, list[int]]]) -> Iterator[Shard]:
        trunk = overwriting(folded(self.cut.trunk.to(self.device)))
        for loaded, rows in batches:
            batch = unpack(loaded, rows)
            with torch.inference_mode():  # not around the loading: a dataset may keep the tensors that it makes
                live = [tensor.contiguous() for tensor in trunk(batch.images.to(self.device))]
                _check_rows(self.cut, live, len(rows))
                shard = {live_name(i): tensor.to(getattr(torch, self.precision)) for i, tensor in enumerate(live)}
                self._check_finite(shard, rows)
                shard |= {"pooled": pool(live[0], self.pooling).float(), "labels": batch.labels, "ids": batch.ids}
            if batch.has_artifact is not None:
                shard["has_artifact"] = batch.has_artifact
            yield {name: tensor.cpu() for name, tensor in shard.items()}

    def _check_finite(self, shard: Shard, rows: list[int]) -> None:
        if not all(torch.isfinite(tensor).all() for tensor in shard.values()):
            advice = ", or use precision='float32'" if self.precision != "float32" else ""
            raise DataError(
                f"The activations at {self.cut.layer!r} are not finite in {self.precision} for some of the images "
                f"{rows[0]} to {rows[-1]}. Check the model's weights and the images{advice}."
            )


def plan_pass(
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
    name: str = "",
) -> CachePass:
    """Look at the first image and cut the model; options as for `hansfree.collect_activations`. Nothing is written."""
    check_choice("precision", precision, Precision)
    check_choice("pooling", pooling, Pooling)
    check_device(device)
    _check_type(model)
    loader = as_loader(data, batch_size)
    key = "" if folder is None else _data_key(loader.dataset, data_key)
    example = unpack(next(iter(load_batches(loader, [[0]], in_process=True))), [0]).images
    cut = split(model, layer, example=example)
    trunk = fingerprint_trunk(cut)
    count = len(loader.dataset)  # type: ignore[arg-type]
    parts = (_FORMAT, trunk, layer, key, str(count), precision, pooling)
    return CachePass(
        cut=cut,
        loader=loader,
        batch_size=loader.batch_size or batch_size,
        trunk=trunk,
        home=None if folder is None else folder / fingerprint(*parts),
        pooling=pooling,
        precision=precision,
        device=device,
        label=f"activations at {layer}" + (f" ({name})" if name else ""),
    )


def fingerprint_trunk(cut: Split) -> str:
    """Return a hash of what the images pass through."""
    return fingerprint_model(cut.trunk, without=[f"model.{name}" for name in cut.may_change])


def _check_type(model: nn.Module) -> None:
    kinds = {parameter.dtype for parameter in model.parameters()} - {torch.float32}
    if kinds:
        raise OptionError(
            f"{type(model).__name__} has weights in {', '.join(sorted(map(str, kinds)))}; hansfree works in float32. "
            "Pass model.float(), and turn the corrected model back afterwards."
        )


def _check_rows(cut: Split, live: Iterable[Tensor], images: int) -> None:
    for tensor in live:
        if tensor.ndim == 0 or len(tensor) != images:
            raise SplitError(
                f"The model cannot be cached at {cut.layer!r}: what follows needs a tensor of shape "
                f"{tuple(tensor.shape)}, which does not have the {images} images of the batch along its first "
                "dimension. Choose another layer."
            )


def _data_key(dataset: Any, given: str | None) -> str:
    key = given or getattr(dataset, "fingerprint", None)
    if key is None:
        raise OptionError(
            f"{type(dataset).__name__} does not say which data it holds, so a cache on disk could be reused wrongly. "
            "Pass data_key='...' (a text that changes when the data change), or leave out folder."
        )
    return str(key)
