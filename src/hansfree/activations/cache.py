"""The cache: every image goes through the frozen trunk once.

In memory, or on disk in shards: each is written atomically, so a killed pass resumes where it stopped, and read through
a memory map, so the process does not grow with the number of images. The folder's name is a hash of weights, data,
layer and preprocessing: another checkpoint can never meet the wrong cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hansfree.activations.passes import CachePass, Precision, fingerprint_trunk, plan_pass
from hansfree.activations.positions import Pooling
from hansfree.activations.shards import Shard, join_facts, live_tensors, map_facts, shard_path
from hansfree.errors import CacheError
from hansfree.files import write_json
from hansfree.progress import Progress, silent
from hansfree.splitting import Order, Split, Train, split


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
    return collect(
        plan_pass(
            model,
            layer,
            data,
            folder=folder,
            data_key=data_key,
            precision=precision,
            pooling=pooling,
            batch_size=batch_size,
            device=device,
            name=name,
        ),
        progress=progress,
    )


def collect(plan: CachePass, *, progress: Progress = silent) -> Activations:
    """Make the shards that are missing, and open all of them."""
    shards: tuple[Shard | Path, ...]
    if plan.home is None:
        kept = list(plan.make(plan.ranges, progress=progress))
        shards, facts = tuple(kept), join_facts(kept)
    else:
        about = {"layer": plan.cut.layer, "precision": plan.precision, "pooling": plan.pooling}
        write_json(plan.home / "about.json", about)
        plan.fill(plan.home, plan.missing(), progress=progress)
        paths = [shard_path(plan.home, rows) for rows in plan.ranges]
        shards, facts = tuple(paths), map_facts(plan.home, paths, plan.images)
    return Activations(
        layer=plan.cut.layer,
        pooling=plan.pooling,
        pooled=facts["pooled"],
        labels=facts["labels"],
        ids=facts["ids"],
        has_artifact=facts.get("has_artifact"),
        shape=tuple(live_tensors(shards[0])[0].shape[1:]),
        trunk=plan.trunk,
        traced=plan.cut.traced,
        shards=shards,
        folder=plan.home,
        order=plan.cut.order,
    )


def cut_again(model: nn.Module, activations: Activations, *, train: Train = "all") -> Split:
    """Cut a model where activations were taken; a model with another trunk than theirs is an error."""
    example = None if activations.traced else next(activations.stream(batch_size=1))[1]
    cut = split(model, activations.layer, example=example, order=activations.order, train=train)
    if fingerprint_trunk(cut) != activations.trunk:
        raise CacheError(
            f"These activations at {activations.layer!r} were not taken from this model: the weights up to the layer "
            "differ. Collect them again with collect_activations."
        )
    return cut
