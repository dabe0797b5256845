"""Activations on disk: shards of fixed index ranges, and a memory-mapped table of facts over all of them.

A shard holds the live tensors at the layer (``live000`` is the layer's output, the rest are skip connections).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from hansfree._internal.files import make_array, written_atomically

log = logging.getLogger(__name__)
Shard = dict[str, Tensor]
FACTS = ("pooled", "labels", "ids", "has_artifact")
_IMAGES = 256


def shard_ranges(images: int, batch_size: int) -> list[range]:
    """Cut the images into ranges of a few hundred, each a multiple of the batch, so that no batch crosses a border."""
    step = max(1, round(_IMAGES / batch_size)) * batch_size
    return [range(start, min(start + step, images)) for start in range(0, images, step)]


def shard_path(home: Path, rows: range) -> Path:
    """Return where the shard of these rows lies."""
    # With the end too: another batch size cuts other ranges, and must not replace shards that are in use.
    return home / f"shard-{rows.start:08d}-{rows.stop:08d}.safetensors"


def is_whole(path: Path, rows: range) -> bool:
    """Say whether the shard is there and readable; a damaged one is collected again."""
    if not path.exists():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            return bool(file.get_slice("labels").get_shape() == [len(rows)])
    except (SafetensorError, OSError) as error:
        log.warning("The shard %s is damaged (%s) and is collected again.", path, error)
        return False


def gather_shards(parts: Iterable[Shard], ranges: Iterable[range]) -> Iterator[Shard]:
    """Join batches, in order, into one shard per range."""
    lengths = map(len, ranges)
    missing, batches = next(lengths, 0), list[Shard]()
    for part in parts:
        batches.append(part)
        missing -= len(part["labels"])
        if missing == 0:
            shard = {name: torch.cat([batch[name] for batch in batches]) for name in part}
            missing, batches = next(lengths, 0), []  # first, so that a shard is held once while it is written
            yield shard


def write_shard(path: Path, shard: Shard) -> None:
    """Write a shard atomically."""
    with written_atomically(path) as temporary:
        save_file(shard, temporary)


def live_name(index: int) -> str:
    """Return the name of a live tensor in a shard; by name they are in order, also where there are more than ten."""
    return f"live{index:03d}"


def live_tensors(shard: Shard | Path) -> tuple[Tensor, ...]:
    """Return the live tensors of a shard; from disk they are memory-mapped."""
    tensors = load_file(shard) if isinstance(shard, Path) else shard
    return tuple(tensors[name] for name in sorted(tensors) if name.startswith("live"))


def join_facts(shards: list[Shard]) -> dict[str, np.ndarray]:
    """Return the facts of all shards that are in memory."""
    return {name: torch.cat([shard[name] for shard in shards]).numpy() for name in FACTS if name in shards[0]}


def map_facts(home: Path, paths: list[Path], images: int) -> dict[str, np.ndarray]:
    """Return the facts of all shards on disk as memory-mapped arrays, written shard by shard on first use."""
    with safe_open(paths[0], framework="pt") as first:
        names = [name for name in FACTS if name in first.keys()]  # noqa: SIM118 (not a dict)
    for name in names:
        target = home / f"{name}.npy"
        if target.exists():
            continue
        table: np.memmap[Any, Any] | None = None
        row = 0
        with written_atomically(target) as temporary:
            for path in paths:
                with safe_open(path, framework="pt") as file:
                    part = file.get_tensor(name).numpy()
                if table is None:
                    table = make_array(temporary, (images, *part.shape[1:]), part.dtype)
                table[row : row + len(part)] = part
                row += len(part)
            if table is not None:
                table.flush()
    return {name: np.load(home / f"{name}.npy", mmap_mode="r") for name in names}
