"""Fingerprints of arrays and models, and randomness by key."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn


@contextmanager
def seeded(*key: int) -> Iterator[torch.Generator]:
    """Key what torch draws within the block by ``key``; yields a generator of its own with the same key.

    Dropout and weight initialisation draw from the global generator and take no other, hence the fork.
    """
    number = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
    with torch.random.fork_rng():
        if _has_gpu():  # without one, `torch.manual_seed` takes milliseconds, in every training step
            torch.random.manual_seed(number)
        else:
            torch.default_generator.manual_seed(number)
        yield torch.Generator().manual_seed(number)


@cache
def _has_gpu() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()


def fingerprint(*parts: str | np.ndarray) -> str:
    """Return a hash of texts and arrays; another order, type, shape or byte gives another one."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"array {part.dtype} {part.shape}\n".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"text {len(part)}\n{part}".encode())
    return digest.hexdigest()[:24]


def fingerprint_model(model: nn.Module, *, without: Collection[str] = ()) -> str:
    """Return a hash of what a model computes: its graph, structure, settings, and all tensors except ``without``.

    Settings are the modules' plain attributes too, because their ``repr`` is not complete: attention with 4 heads
    reads like attention with 8, and has the same weights.
    """
    parts: list[str | np.ndarray] = [type(model).__qualname__, repr(model)]
    if isinstance(model, fx.GraphModule):
        parts.append(str(model.code))
    for path, module in model.named_modules():
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or name == "training":
                continue
            if (text := _plain(value)) is not None:
                parts.append(f"{path}.{name} {text}")
    for tensors in (model.named_parameters, model.named_buffers):  # also buffers that no state_dict holds
        for name, tensor in tensors(remove_duplicate=False):
            if name not in without:
                parts += _tensor(name, tensor)
    return fingerprint(*parts)


def hash_weights(state: Mapping[str, Tensor]) -> str:
    """Return a hash of the names and the numbers of weights: the same for the same weights in any class and file."""
    return fingerprint(*(part for name, tensor in sorted(state.items()) for part in _tensor(name, tensor)))


def _tensor(name: str, tensor: Tensor) -> list[str | np.ndarray]:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)  # bytes: numpy has no bfloat16
    return [f"{name} {tensor.dtype} {tuple(tensor.shape)}", raw.numpy()]


def _plain(value: Any) -> str | None:
    """Return a text for a value whose text says all of it, else None."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, Tensor):
        return fingerprint(*_tensor("tensor", value))
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return fingerprint(np.asarray(value))
    if isinstance(value, (tuple, list)):
        texts = [_plain(one) for one in value]
        return None if None in texts else repr(texts)
    if isinstance(value, dict):
        return _plain([*value.items()])
    return getattr(value, "__qualname__", None)  # a function, as functional.gelu
