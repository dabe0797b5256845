"""Run by ``test_memory``: print peak anonymous memory in bytes for each number of images. Usage: measured.py FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.speed.peak import peak_of
from torch import Tensor, nn
from torch.utils.data import Dataset

from hansfree.activations import FeatureSpec, collect_activations, compute_features, cut_at

COUNTS = (600, 3000)  # the first already fills two shards: one in work, one on its way out


class Blank(Dataset[Any]):
    def __init__(self, n: int) -> None:
        self.n, self.fingerprint = n, f"Blank({n})"
        self.image = torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.image, index % 2, index % 3 == 0


class Wide(nn.Module):
    """Makes 18 kB of activations out of an image, and as much again after the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.relu, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Linear(8 * 24 * 24, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.relu(self.layer(images)).flatten(1))


def fill(folder: Path, images: int) -> None:
    torch.manual_seed(0)
    model = Wide()
    activations = collect_activations(model, "layer", Blank(images), folder=folder, batch_size=64)
    features = compute_features(
        cut_at(model, activations), activations, FeatureSpec(directions=np.eye(8, dtype=np.float32)[:1])
    )
    for start in range(0, images, 64):
        features.rows(slice(start, start + 64))
    float(activations.pooled.sum())


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    fill(root, COUNTS[0] + 1)  # what torch loads once
    # Memory is sampled: on a busy machine a short run's peak can be missed, so each runs three times.
    peaks = [max(peak_of(lambda n=n, run=run: fill(root / str(run), n)) for run in range(3)) for n in COUNTS]
    print(json.dumps(peaks))
