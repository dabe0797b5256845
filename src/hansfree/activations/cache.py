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
from torch.utils.data import DataLoader, Dataset

from hansfree.activations.loading import as_loader, load_batches, read_batches, unpack
from hansfree.activations.positions import Pooling, pool
from hansfree.activations.shards import (
    Shard,
    gather_shards,
    is_whole,
    join_facts,
    live_name,
    live_tensors,
    map_facts,
    shard_path,
    shard_ranges,
    write_shard,
)
from hansfree.errors import CacheError, DataError, OptionError, SplitError, check_choice
from hansfree.files import write_json
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.progress import Progress, silent
from hansfree.splitting import Order, Split, Train, overwriting, split

Precision = Literal["float32", "float16"]

_FORMAT = "2"  # part of the key: raise it when the content of a shard changes its meaning


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
    order: Order | None = None  # of the model's axes in these activations, where it has its channels elsewhere

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
    name: str = "",
    progress: Progress = silent,
) -> Activations:
    """Run every image through the model up to the layer, once.

    Args:
        data: A map-style dataset, or a ``DataLoader`` over one that does not shuffle. It yields
            :class:`~hansfree.datasets.Example`, ``(image, label)`` or ``(image, label, has_artifact)``.
        folder: Where to keep the cache on disk; None keeps it in memory.
        data_key: Says which data these are, for the cache on disk; datasets of hansfree know it themselves.
        name: What the progress calls the images.
    """
    check_choice("precision", precision, Precision)
    check_choice("pooling", pooling, Pooling)
    _check_type(model)
    loader = as_loader(data, batch_size)
    size: int = loader.batch_size or batch_size
    key = "" if folder is None else _data_key(loader.dataset, data_key)
    example = unpack(next(iter(load_batches(loader, [[0]], in_process=True))), [0]).images
    cut = split(model, layer, example=example)
    trunk = _fingerprint_trunk(cut)
    count = len(loader.dataset)  # type: ignore[arg-type]
    ranges = shard_ranges(count, size)
    home = None
    if folder is not None:
        home = folder / fingerprint(_FORMAT, trunk, layer, key, str(count), precision, pooling)
        write_json(home / "about.json", {"layer": layer, "precision": precision, "pooling": pooling})
    todo = [rows for rows in ranges if home is None or not is_whole(shard_path(home, rows), rows)]

    batches = [list(rows[i : i + size]) for rows in todo for i in range(0, len(rows), size)]
    images = load_batches(loader, batches, in_process=not batches)
    label = f"activations at {layer}" + (f" ({name})" if name else "")
    stream = progress(read_batches(images), total=len(batches), label=label)
    outputs = _run_trunk(cut, zip(stream, batches), pooling=pooling, precision=precision, device=device)
    kept: list[Shard] = []
    for shard, rows in zip(gather_shards(outputs, todo), todo):
        if home is None:
            kept.append(shard)
        else:
            write_shard(shard_path(home, rows), shard)

    shards: tuple[Shard | Path, ...] = tuple(kept) if home is None else tuple(shard_path(home, r) for r in ranges)
    paths = [shard for shard in shards if isinstance(shard, Path)]
    facts = join_facts(kept) if home is None else map_facts(home, paths, count)
    return Activations(
        layer=layer,
        pooling=pooling,
        pooled=facts["pooled"],
        labels=facts["labels"],
        ids=facts["ids"],
        has_artifact=facts.get("has_artifact"),
        shape=tuple(live_tensors(shards[0])[0].shape[1:]),
        trunk=trunk,
        traced=cut.traced,
        shards=shards,
        folder=home,
        order=cut.order,
    )


def _check_type(model: nn.Module) -> None:
    kinds = {parameter.dtype for parameter in model.parameters()} - {torch.float32}
    if kinds:
        raise OptionError(
            f"{type(model).__name__} has weights in {', '.join(sorted(map(str, kinds)))}; hansfree works in float32. "
            "Pass model.float(), and turn the corrected model back afterwards."
        )


def cut_again(model: nn.Module, activations: Activations, *, train: Train = "all") -> Split:
    """Cut a model where activations were taken; a model with another trunk than theirs is an error."""
    example = None if activations.traced else next(activations.stream(batch_size=1))[1]
    cut = split(model, activations.layer, example=example, order=activations.order, train=train)
    if _fingerprint_trunk(cut) != activations.trunk:
        raise CacheError(
            f"These activations at {activations.layer!r} were not taken from this model: the weights up to the layer "
            "differ. Collect them again with collect_activations."
        )
    return cut


def _fingerprint_trunk(cut: Split) -> str:
    # A trunk that is cut by hooks holds the whole model, so what is trained has to be left out.
    return fingerprint_model(cut.trunk, without=() if cut.traced else [f"model.{name}" for name in cut.trainable])


def _run_trunk(
    cut: Split,
    batches: Iterable[tuple[Any, list[int]]],
    *,
    pooling: Pooling,
    precision: Precision,
    device: str,
) -> Iterator[Shard]:
    trunk = overwriting(cut.trunk.to(device))
    for loaded, rows in batches:
        batch = unpack(loaded, rows)
        with torch.inference_mode():  # not around the loading: a dataset may keep the tensors that it makes
            live = trunk(batch.images.to(device))
            _check_rows(cut, live, len(rows))
            shard = {live_name(i): tensor.to(getattr(torch, precision)) for i, tensor in enumerate(live)}
            if not all(torch.isfinite(tensor).all() for tensor in shard.values()):
                advice = ", or use precision='float32'" if precision != "float32" else ""
                raise DataError(
                    f"The activations at {cut.layer!r} are not finite in {precision} for some of the images {rows[0]} "
                    f"to {rows[-1]}. Check the model's weights and the images{advice}."
                )
            shard |= {"pooled": pool(live[0], pooling).float(), "labels": batch.labels, "ids": batch.ids}
        if batch.has_artifact is not None:
            shard["has_artifact"] = batch.has_artifact
        yield {name: tensor.cpu().contiguous() for name, tensor in shard.items()}


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
