"""Weights of another package under timm's names."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hansfree.errors import OptionError
from hansfree.models.zoo import rename_lite

MODEL = nn.Linear(2, 3)  # as many tensors as the file has


def given(*names: str) -> dict[str, Tensor]:
    return {name: torch.full((1,), float(place)) for place, name in enumerate(names)}


def test_weights_are_renamed_by_their_order() -> None:
    renamed = rename_lite(given("_conv_stem.weight", "_fc.bias"), MODEL)
    assert {name: value.item() for name, value in renamed.items()} == {"weight": 0.0, "bias": 1.0}


def test_sorted_names_are_refused() -> None:
    with pytest.raises(OptionError, match=r"not its order.*\.pth"):
        rename_lite(given("_blocks.0.weight", "_conv_stem.weight", "_fc.bias"), MODEL)
    with pytest.raises(OptionError, match="not its order"):
        rename_lite(given("_conv_stem.weight", "_fc.bias", "_fc.weight"), MODEL)


def test_timms_own_names_stay() -> None:
    assert list(rename_lite(given("conv_stem.weight", "bn1.weight"), MODEL)) == ["conv_stem.weight", "bn1.weight"]
