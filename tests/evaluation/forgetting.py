"""A tiny world in which a network learned a shortcut: two layers before the cut, two after it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from hansfree.activations import Activations
from hansfree.cavs import CAV, SignalCAV
from hansfree.corrections import RRClArC
from hansfree.corrections.training import FineTuning
from tests.corrections.examples import Case, TinyImages, collect

TUNING = FineTuning(optimizer="adam", learning_rate=1e-2, epochs=5, batch_size=50)


def deep_model() -> nn.Module:
    """The layer is the third module; what follows it has a hidden layer of its own."""
    widths = (3 * 8 * 8, 16, 12, 8, 3)
    layers: list[nn.Module] = [nn.Flatten()]
    for given, made in pairwise(widths):
        layers += [nn.Linear(given, made), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


CASE = Case(deep_model, "3", "3")


@dataclass(frozen=True)
class World:
    """The biased model, its corrected version, and what both are judged by."""

    model: nn.Module
    fixed: nn.Module
    train: Activations
    clean: Activations
    biased: Activations
    cav: CAV


@cache
def world() -> World:
    """Train and correct, once for all tests."""
    data, model = TinyImages(500), CASE.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        loss = functional.cross_entropy(model(data.images), torch.from_numpy(data.labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    train = collect(CASE, model, data)
    inside = train.labels == 0  # the class that the artifact leaks into
    assert train.has_artifact is not None
    cav = SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
    fixed = RRClArC(cav, strength=3.0, tuning=TUNING).correct(model, train)
    clean, biased = (collect(CASE, model, TinyImages(300, artifact=kind, seed=1)) for kind in ("none", "all"))
    return World(model, fixed, train, clean, biased, cav)
