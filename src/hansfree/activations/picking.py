"""Some rows of a cache, or of several: another draw of the images costs no pass through the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hansfree.activations.cache import Activations
from hansfree.activations.positions import Pooling, pool
from hansfree.activations.shards import live_name, live_tensors
from hansfree.errors import DataError


def pick(activations: Activations, rows: np.ndarray) -> Activations:
    """Return some images in this order, in memory."""
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(activations):
        raise DataError(f"Rows run from {rows.min()} to {rows.max()}, but there are {len(activations)} images.")
    live = [_rows(activations, place, rows) for place in range(len(live_tensors(activations.shards[0])))]
    facts = {name: np.asarray(getattr(activations, name))[rows] for name in ("pooled", "labels", "ids")}
    bits = activations.has_artifact
    return replace(
        activations,
        **facts,
        has_artifact=None if bits is None else np.asarray(bits)[rows],
        shards=({live_name(place): tensor for place, tensor in enumerate(live)},),
        folder=None,
    )


def pool_again(activations: Activations, pooling: Pooling) -> Activations:
    """Return the same activations, pooled in another way for the CAV."""
    pooled = np.concatenate([pool(layer, pooling).numpy() for layer, *_ in activations.stream()])
    return replace(activations, pooled=pooled, pooling=pooling)


def _rows(activations: Activations, place: int, rows: np.ndarray) -> Tensor:
    """Return one live tensor of some images, shard by shard, so that only the wanted rows are in memory."""
    found: Tensor | None = None
    start = 0
    for shard in activations.shards:
        tensor = live_tensors(shard)[place]
        inside = np.flatnonzero((rows >= start) & (rows < start + len(tensor)))
        if found is None:
            found = torch.empty((len(rows), *tensor.shape[1:]), dtype=torch.float32)
        found[torch.from_numpy(inside)] = tensor[torch.from_numpy(rows[inside] - start)].float()
        start += len(tensor)
    return torch.empty(0) if found is None else found
