"""Weights are written as they are, whatever memory they share, and always as the same bytes."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from hansfree.models.weights import write_weights


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight


def test_tied_and_transposed_tensors_come_back(tmp_path: Path) -> None:
    state = {**Tied().state_dict(), "turned": torch.arange(6.0).reshape(2, 3).T}
    write_weights(tmp_path / "new" / "w.safetensors", state)
    read = load_file(tmp_path / "new" / "w.safetensors")
    assert set(read) == {"first.weight", "second.weight", "turned"}
    assert all(torch.equal(read[name], tensor) for name, tensor in state.items())


def test_the_same_weights_and_metadata_are_the_same_bytes(tmp_path: Path) -> None:
    about = {name: f"«{name}»" for name in "zyxabc"}
    path, found = tmp_path / "w.safetensors", set()
    for _ in range(6):  # safetensors itself shuffles the metadata
        write_weights(path, {"w": torch.ones(3)}, about)
        found.add(path.read_bytes())
    assert len(found) == 1
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == about
        assert torch.equal(file.get_tensor("w"), torch.ones(3))
