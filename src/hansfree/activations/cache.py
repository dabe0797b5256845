"""A layer's output for all images, computed once: collect, pool, select, join."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hansfree._internal.files import write_json
from hansfree._internal.hashing import fingerprint, fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree.activations.loading import as_loader, load_batches, read_batches, unpack
from hansfree.activations.shards import (
    FACTS,
    Shard,
    gather_shards,
    is_whole,
    live_name,
    live_tensors,
    read_facts,
    shard_path,
    shard_ranges,
    stored_arrays,
    write_shard,
)
from hansfree.errors import CacheError, DataError, OptionError, SplitError, check_choice
from hansfree.models.surgery import (
    CHANNEL_AXIS,
    AxisOrder,
    Cut,
    Train,
    check_device,
    fuse_for_inference,
    make_inplace,
    split,
)

Pooling = Literal["max", "mean"]


def channel_axis(ndim: int) -> int:
    """Return the axis of the channels in a batch of activations with ``ndim`` axes."""
    if ndim not in CHANNEL_AXIS:
        raise DataError(
            f"A layer's output must be flat (n, channels), tokens (n, tokens, channels) or maps "
            f"(n, channels, height, width); this one has {ndim} axes."
        )
    return CHANNEL_AXIS[ndim]


def pool(activations: Tensor, pooling: Pooling) -> Tensor:
    """Reduce activations to one number per channel, ``(n, channels)``: the paper takes the maximum (App. A.4)."""
    axes = position_axes(activations.ndim)
    if not axes:
        return activations
    return activations.amax(axes) if pooling == "max" else activations.mean(axes)


def at_every_position(vectors: Tensor, ndim: int) -> Tensor:
    """Give vectors ``(n, channels)`` the axes that let them be added to activations with ``ndim`` axes."""
    for axis in position_axes(ndim):  # not a reshape: it would fix the number of images in an exported graph
        vectors = vectors.unsqueeze(axis)
    return vectors


def along(activations: Tensor, direction: Tensor) -> Tensor:
    """Return the coordinate along ``direction`` at each position, flattened: ``(n, positions)``."""
    coordinates = activations.movedim(channel_axis(activations.ndim), -1).matmul(direction)
    return coordinates.reshape(len(activations), -1)


def position_axes(ndim: int) -> tuple[int, ...]:
    """Return the axes of a batch of activations that are neither the images nor the channels."""
    channels = channel_axis(ndim)
    return tuple(axis for axis in range(1, ndim) if axis != channels)


def count_positions(shape: tuple[int, ...]) -> int:
    """Return how many positions activations of this shape have; 1 when they are flat."""
    return math.prod(shape[axis] for axis in position_axes(len(shape)))


def sum_positions(activations: Tensor) -> Tensor:
    """Add up over the positions: ``(n, channels)``."""
    axes = position_axes(activations.ndim)
    return activations.sum(axes) if axes else activations


def random_signs(activations: Tensor, generator: torch.Generator) -> Tensor:
    """Draw +1 or -1 for every position of every image, the same for all channels."""
    shape = list(activations.shape)
    shape[channel_axis(activations.ndim)] = 1
    return (2 * torch.randint(0, 2, shape, generator=generator) - 1).to(activations)


Precision = Literal["float32", "float16"]
_FORMAT = "2"  # part of the key: raise it when the content of a shard changes its meaning


@dataclass(frozen=True, eq=False, kw_only=True)
class CachePass:
    """All images of a set on their way to a layer: into which shards, and how each is made."""

    cut: Cut
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
        """Return the images of all shards that are not on disk, or damaged."""
        return [rows for rows in self.ranges if self.home is None or not is_whole(shard_path(self.home, rows))]

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
        trunk = make_inplace(fuse_for_inference(self.cut.trunk.to(self.device)))
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
    batch_size: int = 64,
    device: str = "cpu",
    name: str = "",
    folder: Path | None = None,
    data_key: str | None = None,
    precision: Precision = "float32",
    pooling: Pooling = "max",
) -> CachePass:
    """Look at the first image and cut the model; options as for `hansfree.collect_activations`. Nothing is written."""
    check_choice("precision", precision, Precision)
    check_choice("pooling", pooling, Pooling)
    check_device(device)
    if kinds := {parameter.dtype for parameter in model.parameters()} - {torch.float32}:
        raise OptionError(
            f"{type(model).__name__} has weights in {', '.join(sorted(map(str, kinds)))}; hansfree works in float32. "
            "Pass model.float(), and turn the corrected model back afterwards."
        )
    loader = as_loader(data, batch_size)
    key = "" if folder is None else data_key or getattr(loader.dataset, "fingerprint", None)
    if key is None:
        raise OptionError(
            f"{type(loader.dataset).__name__} does not say which data it holds, so a cache on disk could be reused "
            "wrongly. Pass data_key='...' (a text that changes when the data change), or leave out folder."
        )
    example = unpack(next(iter(load_batches(loader, [[0]], in_process=True))), [0]).images
    cut = split(model, layer, example=example)
    trunk = fingerprint_trunk(cut)
    count = len(loader.dataset)  # type: ignore[arg-type]
    parts = (_FORMAT, trunk, layer, str(key), str(count), precision, pooling)
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


def fingerprint_trunk(cut: Cut) -> str:
    """Return a hash of what the images pass through."""
    return fingerprint_model(cut.trunk, without=[f"model.{name}" for name in cut.may_change])


def _check_rows(cut: Cut, live: Iterable[Tensor], images: int) -> None:
    for tensor in live:
        if tensor.ndim == 0 or len(tensor) != images:
            raise SplitError(
                f"The model cannot be cached at {cut.layer!r}: what follows needs a tensor of shape "
                f"{tuple(tensor.shape)}, which does not have the {images} images of the batch along its first "
                "dimension. Choose another layer."
            )


@dataclass(frozen=True, eq=False)
class Activations:
    """A layer's output for every image of a set, with what is known about the images.

    ``pooled`` (n, channels) is what CAVs are fitted on; ``has_artifact`` is None when the data do not say.

    Examples:
        >>> import hansfree as hf
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 2))
        >>> images = hf.WithArtifact(hf.SyntheticLesions(8, size=16), hf.Timestamp(), share=0.5)
        >>> found = hf.collect_activations(model, "0", images)
        >>> len(found), found.shape, int(found.has_artifact.sum())
        (8, (4, 12, 12), 4)
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
    order: AxisOrder | None = None  # of the model's axes in these activations, where it has its channels elsewhere

    def __len__(self) -> int:
        return len(self.labels)

    def samples(self, label: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return pooled activations and artifact labels, what CAVs are fitted on; those of one class by its label."""
        if self.has_artifact is None:
            raise DataError("The images have no artifact labels: collect a dataset of (image, label, has_artifact).")
        rows = slice(None) if label is None else self.labels == label
        return self.pooled[rows], self.has_artifact[rows]

    def stream(self, *, batch_size: int = 256) -> Iterator[tuple[Tensor, ...]]:
        """Yield the live tensors at the layer in order, as float32: the layer's output, then skip connections."""
        for shard in self.shards:
            tensors = live_tensors(shard)
            for start in range(0, len(tensors[0]), batch_size):
                yield tuple(tensor[start : start + batch_size].float() for tensor in tensors)

    def select(self, rows: np.ndarray) -> Activations:
        """Return the images at these rows, in this order, in memory."""
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise DataError(f"Rows run from {rows.min()} to {rows.max()}, but there are {len(self)} images.")
        live = [torch.empty((len(rows), *tensor.shape[1:])) for tensor in live_tensors(self.shards[0])]
        start = 0
        for shard in self.shards:  # one after the other, so that only the wanted rows are in memory
            tensors = live_tensors(shard)
            inside = np.flatnonzero((rows >= start) & (rows < start + len(tensors[0])))
            for found, tensor in zip(live, tensors):
                found[torch.from_numpy(inside)] = tensor[torch.from_numpy(rows[inside] - start)].float()
            start += len(tensors[0])
        shards = ({live_name(place): tensor for place, tensor in enumerate(live)},)
        return _with_facts(self, lambda name: np.asarray(getattr(self, name))[rows], shards)


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
            :class:`~hansfree.data.examples.Example`, ``(image, label)`` or ``(image, label, has_artifact)``.
        folder: Where to keep the cache on disk; None keeps it in memory.
        data_key: Says which data these are, for the cache on disk; datasets of hansfree know it themselves.
        name: What the progress calls the images.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 2))
        >>> images = [(torch.rand(3, 16, 16), label, label == 0) for label in (0, 1)]
        >>> collect_activations(model, "1", images).pooled.shape
        (2, 4)
    """
    options: Any = {"folder": folder, "data_key": data_key, "precision": precision, "pooling": pooling}
    plan = plan_pass(model, layer, data, batch_size=batch_size, device=device, name=name, **options)
    return collect(plan, progress=progress)


def collect(plan: CachePass, *, progress: Progress = silent) -> Activations:
    """Make the shards that are missing, and open all of them."""
    shards: tuple[Shard | Path, ...]
    if plan.home is None:
        kept = list(plan.make(plan.ranges, progress=progress))
        names = [name for name in FACTS if name in kept[0]]
        shards, facts = tuple(kept), {name: torch.cat([shard[name] for shard in kept]).numpy() for name in names}
    else:
        about = {"layer": plan.cut.layer, "precision": plan.precision, "pooling": plan.pooling}
        write_json(plan.home / "about.json", about)
        plan.fill(plan.home, plan.missing(), progress=progress)
        paths = [shard_path(plan.home, rows) for rows in plan.ranges]
        shards, facts = tuple(paths), stored_arrays(plan.home / "facts", lambda: read_facts(paths), plan.images)
    images: dict[str, Any] = {"has_artifact": None, **facts}
    return Activations(
        **images,
        layer=plan.cut.layer,
        pooling=plan.pooling,
        shape=tuple(live_tensors(shards[0])[0].shape[1:]),
        trunk=plan.trunk,
        traced=plan.cut.traced,
        shards=shards,
        folder=plan.home,
        order=plan.cut.order,
    )


def cut_at(model: nn.Module, activations: Activations, *, train: Train = "all") -> Cut:
    """Cut a model where activations were taken; a model with another trunk than theirs is an error."""
    example = None if activations.traced else next(activations.stream(batch_size=1))[1]
    cut = split(model, activations.layer, example=example, order=activations.order, train=train)
    if fingerprint_trunk(cut) != activations.trunk:
        raise CacheError(
            f"These activations at {activations.layer!r} were not taken from this model: the weights up to the layer "
            "differ. Collect them again with collect_activations."
        )
    return cut


def _with_facts(
    activations: Activations, fact: Callable[[str], np.ndarray], shards: tuple[Shard | Path, ...]
) -> Activations:
    """Return activations of other images, kept in memory; without artifact labels where the given ones have none."""
    facts: dict[str, Any] = {name: fact(name) for name in FACTS if getattr(activations, name) is not None}
    return replace(activations, **facts, shards=shards, folder=None)


def join(first: Activations, second: Activations) -> Activations:
    """Return the images of both, taken at one layer of one model; what follows from them is kept in memory."""
    if (first.layer, first.trunk, first.pooling) != (second.layer, second.trunk, second.pooling):
        raise CacheError("Only activations of the same layer of the same model can be joined.")
    if second.has_artifact is None:
        first = replace(first, has_artifact=None)
    both = (first, second)
    return _with_facts(
        first, lambda name: np.concatenate([getattr(one, name) for one in both]), first.shards + second.shards
    )


def find_pairs(activations: Activations) -> np.ndarray:
    """Return the rows of each image without and with the artifact, ``(pairs, 2)``."""
    bits = activations.has_artifact
    if bits is None:
        raise DataError("To find pairs one needs to know which images carry the artifact.")
    partners = {int(activations.ids[row]): int(row) for row in np.flatnonzero(bits)}
    pairs = np.array(
        [(row, partners[image]) for row in np.flatnonzero(~bits) if (image := int(activations.ids[row])) in partners],
        dtype=np.int64,
    ).reshape(-1, 2)
    if not len(pairs):
        raise DataError(
            "Pairs are every image twice, without and with the artifact inserted, under one id. Collect activations "
            "of both sets together (torch.utils.data.ConcatDataset); the sets must yield ids (hansfree.Example), for "
            "plain tuples are numbered in a row, each as an image of its own."
        )
    if not np.array_equal(*np.asarray(activations.labels)[pairs].T):
        raise DataError("Some images have one label without the artifact and another with it inserted.")
    return pairs
