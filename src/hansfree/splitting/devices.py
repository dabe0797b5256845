"""Devices: which there are, and parts of a model on the one that computes them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from hansfree.errors import OptionError, nearest

_KINDS: dict[str, Callable[[], bool]] = {
    "cpu": lambda: True,
    "cuda": torch.cuda.is_available,
    "mps": torch.backends.mps.is_available,
}


def check_device(device: str) -> None:
    """Refuse a device that does not exist, or that this machine does not have."""
    kind, _, number = str(device).partition(":")
    if kind not in _KINDS or not (number or "0").isdecimal():
        raise OptionError(f"There is no device {device!r}.{nearest(kind, _KINDS)} Known: {', '.join(_KINDS)}.")
    if not _KINDS[kind]():
        raise OptionError(f"This machine, or this PyTorch, has no {kind!r} device. Take the device 'cpu'.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        cards = (f"cuda:{card}" for card in range(torch.cuda.device_count()))
        raise OptionError(f"There is no device {str(device)!r}. This machine has {', '.join(('cpu', *cards))}.")


def on_device(part: nn.Module, device: str) -> nn.Module:
    """Return the part on the device; the given one stays where it is, for the cache is streamed through it there."""
    return part if torch.device(device).type == "cpu" else copy.deepcopy(part).to(device)
