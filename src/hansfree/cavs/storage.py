"""Fitted CAVs on disk: one safetensors file, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hansfree.cavs.base import CAV
from hansfree.errors import HansfreeError, RunError
from hansfree.files import ordered_metadata, written_atomically

FORMAT = "hansfree.cavs.1"


def save_cavs(path: str | Path, cavs: Mapping[str, CAV]) -> None:
    """Write fitted CAVs under names of your choice, as tensors such as ``signal.directions_``.

    The file appears complete or not at all: it is written beside its place and then moved there.
    """
    path = Path(path)
    tensors = {f"{key}.{name}": value for key, cav in cavs.items() for name, value in cav.to_tensors().items()}
    metadata = {"format": FORMAT, "cavs": json.dumps({key: cav.to_header() for key, cav in cavs.items()})}
    with written_atomically(path) as unfinished:
        unfinished.write_bytes(ordered_metadata(save(tensors, metadata=metadata)))


def load_cavs(path: str | Path) -> dict[str, CAV]:
    """Read what ``save_cavs`` wrote, in the same order."""
    path = Path(path)
    tensors, metadata = read_tensors(path, FORMAT, what="CAVs")
    try:
        headers: dict[str, str] = json.loads(metadata["cavs"])
        return {key: CAV.from_tensors(_of(key, tensors), header) for key, header in headers.items()}
    except HansfreeError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{str(path)!r} is damaged, or of another version of hansfree ({error!r}).") from error


def read_tensors(path: Path, format: str, *, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the tensors and the metadata of a file of our own; any other file is an error.

    Args:
        what: the file should hold, for the sentences.
    """
    if not path.is_file():
        raise RunError(f"There is no file {str(path)!r} to read {what} from.")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except SafetensorError as error:
        raise RunError(f"{str(path)!r} is not a readable safetensors file ({error}).") from error
    if metadata.get("format") != format:
        raise RunError(
            f"{str(path)!r} holds no {what} in the format {format!r}; its format is {metadata.get('format')!r}."
        )
    return tensors, metadata


def _of(key: str, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    own = {name.rpartition(".")[2]: value for name, value in tensors.items() if name.rpartition(".")[0] == key}
    if not np.size(own.get("directions_", ())):
        raise KeyError(f"{key}.directions_")
    return own
