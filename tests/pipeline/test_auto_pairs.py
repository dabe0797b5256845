"""Auto-pairs: what the CAV finds is cut out and pasted, and how near that comes to true pairs is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hansfree.activations import collect_activations
from hansfree.cavs import PairCAV, SignalCAV
from hansfree.data.artifacts import Artifact, Timestamp
from hansfree.data.biased import BiasedData, insert_bias
from hansfree.data.datasets import Subset
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.pipeline.auto_pairs import make_auto_pairs, measure_auto_pairs

LAYER = "0"


def colours() -> nn.Module:
    """A layer that sees colours and edges, without training; a timestamp's orange and its outline show in it."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)
        ).eval()


MODEL = colours()


def data_of(artifact: str) -> BiasedData:
    parts = [SyntheticLesions(n, size=32, start=start) for n, start in ((120, 0), (8, 120), (40, 128))]
    return insert_bias(parts, Artifact.named(artifact)(), biased_class=0, share=0.5)


def signal(data: BiasedData) -> SignalCAV:
    train = collect_activations(MODEL, LAYER, data.train)
    inside = train.labels == 0
    return SignalCAV().fit(train.pooled[inside], np.asarray(train.has_artifact)[inside])


def test_the_pairs_are_the_clean_images_and_the_same_with_a_part_of_a_marked_one() -> None:
    data = data_of("timestamp")
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


@pytest.mark.parametrize("artifact", ["timestamp", "plaster"])
def test_true_pairs_are_nearest_and_auto_pairs_near(artifact: str) -> None:
    data = data_of(artifact)
    found = measure_auto_pairs(MODEL, LAYER, signal(data), data)
    assert found.true.n == found.auto.n > 35
    assert found.true.value > 0.9
    assert found.true.value > found.auto.value > 0.6
    # The same numbers by hand: the cosine with the mean change of the test images.
    clean, biased = (
        collect_activations(MODEL, LAYER, images).pooled
        for images in make_auto_pairs(MODEL, LAYER, signal(data), data.train)
    )
    auto = PairCAV(count=1).fit_pairs(clean, biased).direction_
    without, within = (collect_activations(MODEL, LAYER, s).pooled for s in (data.test_clean, data.test_biased))
    change = (within.astype(float) - without).mean(axis=0)
    assert found.auto.value == pytest.approx(float(auto @ change / np.linalg.norm(change)), abs=1e-5)


def test_what_cannot_be_cut_out_or_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of("timestamp")
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
    others = WithArtifact(SyntheticLesions(9, size=32, start=300), Timestamp(), share=1.0)
    natural = replace(data, test_biased=others, is_inserted=False)
    with pytest.raises(UndefinedMetricError, match="can be inserted"):
        measure_auto_pairs(MODEL, LAYER, cav, natural)
