"""Activations on disk, with checksums: shards of fixed index ranges, and memory-mapped arrays over all images.

A shard holds the live tensors at the layer (``live000`` is the layer's output, the rest are skip connections).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from hansfree._internal.files import (
    are_intact,
    folder_written_atomically,
    make_array,
    write_checksums,
    written_atomically,
)

Shard = dict[str, Tensor]
FACTS = ("pooled", "labels", "ids", "has_artifact")
_IMAGES = 256
_CHECKSUMS = "checksums.json"


def shard_ranges(images: int, batch_size: int) -> list[range]:
    """Cut the images into ranges of a few hundred, each a multiple of the batch, so that no batch crosses a border."""
    step = max(1, round(_IMAGES / batch_size)) * batch_size
    return [range(start, min(start + step, images)) for start in range(0, images, step)]


def shard_path(home: Path, rows: range) -> Path:
    """Return where the shard of these rows lies."""
    # With the end too: another batch size cuts other ranges, and must not replace shards that are in use.
    return home / f"shard-{rows.start:08d}-{rows.stop:08d}.safetensors"


def is_whole(path: Path) -> bool:
    """Return whether the shard is there and as it was written; a damaged one is collected again."""
    return are_intact(path.with_suffix(".json"))


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
    write_checksums(path.with_suffix(".json"), [path])


def live_name(index: int) -> str:
    """Return the name of a live tensor in a shard; by name they are in order, also where there are more than ten."""
    return f"live{index:03d}"


def live_tensors(shard: Shard | Path) -> tuple[Tensor, ...]:
    """Return the live tensors of a shard; from disk they are memory-mapped."""
    tensors = load_file(shard) if isinstance(shard, Path) else shard
    return tuple(tensors[name] for name in sorted(tensors) if name.startswith("live"))


def read_facts(paths: Iterable[Path]) -> Iterator[Shard]:
    """Yield the facts of each shard on disk."""
    for path in paths:
        with safe_open(path, framework="pt") as file:
            yield {name: file.get_tensor(name) for name in FACTS if name in file.keys()}  # noqa: SIM118 (not a dict)


def stored_arrays(folder: Path, parts: Callable[[], Iterable[Shard]], images: int) -> dict[str, np.ndarray]:
    """Return arrays over all images, memory-mapped; what is missing or damaged is computed and written, part by part.

    Args:
        parts: Computes them: consecutive images, each a tensor per array.
    """
    if folder.exists() and not are_intact(folder / _CHECKSUMS):
        shutil.rmtree(folder)
    if not folder.exists():
        with folder_written_atomically(folder) as temporary:
            _write_arrays(temporary, parts(), images)
    return {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}


def _write_arrays(folder: Path, parts: Iterable[Shard], images: int) -> None:
    arrays: dict[str, np.memmap[Any, Any]] = {}
    row = 0
    for part in parts:
        for name, tensor in part.items():
            values = tensor.numpy()
            if name not in arrays:
                arrays[name] = make_array(folder / f"{name}.npy", (images, *values.shape[1:]), values.dtype)
            arrays[name][row : row + len(values)] = values
        row += len(values)
    for array in arrays.values():
        array.flush()
    write_checksums(folder / _CHECKSUMS, [folder / f"{name}.npy" for name in arrays])
