"""Short names for exact contents: what a cache belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
import torch
from torch import nn


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
    """Return a hash of a model's class, structure and every weight and buffer, except those ``without``."""
    parts: list[str | np.ndarray] = [type(model).__qualname__, repr(model)]
    for name, tensor in model.state_dict().items():
        if any(name.endswith(left_out) for left_out in without):
            continue
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)  # bytes: numpy has no bfloat16
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}", raw.numpy()]
    return fingerprint(*parts)
