"""Run by ``test_cache``: print peak anonymous memory in bytes for each number of images. Usage: measured.py FOLDER."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from benchmarks.speed.peak import peak_of
from torch import nn

from hansfree.activations import FeatureSpec, collect_activations, compute_features, cut_at

COUNTS = (600, 3000)  # the first already fills two shards: one in work, one on its way out


def fill(folder: Path, count: int) -> None:
    """Make 18 kB of activations out of each image, and as much again after the layer."""
    torch.manual_seed(0)
    image = torch.rand(3, 24, 24)
    parts = {"layer": nn.Conv2d(3, 8, 3, padding=1), "relu": nn.ReLU(), "flat": nn.Flatten()}
    model = nn.Sequential(OrderedDict(**parts, head=nn.Linear(8 * 24 * 24, 2)))
    images = [(image, index % 2, index % 3 == 0) for index in range(count)]
    activations = collect_activations(model, "layer", images, folder=folder, data_key=str(count), batch_size=64)
    spec = FeatureSpec(directions=np.eye(8, dtype=np.float32)[:1])
    features = compute_features(cut_at(model, activations), activations, spec)
    for start in range(0, count, 64):
        features.rows(slice(start, start + 64))
    float(activations.pooled.sum())


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    fill(root, COUNTS[0] + 1)  # what torch loads once
    # Memory is sampled: on a busy machine a short run's peak can be missed, so each runs twice.
    peaks = [max(peak_of(lambda n=n, run=run: fill(root / str(run), n)) for run in range(2)) for n in COUNTS]
    print(json.dumps(peaks))
