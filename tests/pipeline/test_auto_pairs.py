"""Auto-pairs: what the CAV finds is cut out and pasted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hansfree.activations import collect_activations
from hansfree.cavs import PairCAV, SignalCAV
from hansfree.data.biased import BiasedData
from hansfree.data.datasets import Subset
from hansfree.errors import DataError
from hansfree.pipeline.auto_pairs import make_auto_pairs
from tests.pipeline.worlds import stamped

LAYER = "0"


def colours() -> nn.Module:
    """A layer that sees colours and edges, without training; a timestamp's orange and its outline show in it."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)
        ).eval()


MODEL = colours()


def signal(data: BiasedData) -> SignalCAV:
    train = collect_activations(MODEL, LAYER, data.train)
    inside = train.labels == 0
    return SignalCAV().fit(train.pooled[inside], np.asarray(train.has_artifact)[inside])


def test_the_pairs_are_the_clean_images_and_the_same_with_a_part_of_a_marked_one() -> None:
    data = stamped(120, 8, 40, classes=4)
    clean, biased = make_auto_pairs(MODEL, LAYER, signal(data), data.train)
    assert not clean.has_artifact.any()
    assert biased.has_artifact.all()
    assert len(clean) == len(biased) == int((~data.train.has_artifact).sum())
    np.testing.assert_array_equal(clean.ids, biased.ids)
    touched = 0.0
    for index in range(0, len(clean), 7):
        (before, _), (after, mask) = clean.pixels(index), biased.pixels(index)
        assert 0 < mask.mean() < 1
        np.testing.assert_array_equal(after[~mask], before[~mask])
        touched += float(np.any(after != before))
    assert touched > 0


def test_their_direction_is_near_the_change_of_true_pairs() -> None:
    data = stamped(120, 8, 40, classes=4)
    pairs = (*make_auto_pairs(MODEL, LAYER, signal(data), data.train), data.test_clean, data.test_biased)
    clean, biased, without, within = (collect_activations(MODEL, LAYER, images).pooled for images in pairs)
    change = (within.astype(float) - without).mean(axis=0)
    auto = PairCAV(count=1).fit_pairs(clean, biased).direction_
    assert auto @ change / np.linalg.norm(change) > 0.6


def test_what_cannot_be_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stamped(120, 8, 40, classes=4)
    cav = signal(data)
    clean = Subset(data.train, np.flatnonzero(~data.train.has_artifact))
    with pytest.raises(DataError, match=f"0 of {len(clean)} carry it"):
        make_auto_pairs(MODEL, LAYER, cav, clean)
    monkeypatch.setattr(
        "hansfree.pipeline.auto_pairs.localise_artifact",
        lambda *_, **__: np.ones((int(data.train.has_artifact.sum()), 32, 32), bool),
    )
    with pytest.raises(DataError, match=r"in none of the \d+ marked images"):
        make_auto_pairs(MODEL, LAYER, cav, data.train)
