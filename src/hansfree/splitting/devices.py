"""Parts of a model on the device that computes them."""

from __future__ import annotations

import copy

import torch
from torch import nn


def on_device(part: nn.Module, device: str) -> nn.Module:
    """Return the part on the device; the given one stays where it is, for the cache is streamed through it there."""
    return part if torch.device(device).type == "cpu" else copy.deepcopy(part).to(device)
