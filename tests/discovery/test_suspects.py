"""Suspects: the effect on embedded images, relevance features, JSON, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hansfree.activations import collect_activations
from hansfree.corrections.training import Pretraining, pretrain
from hansfree.data.artifacts import Artifact, Timestamp
from hansfree.data.datasets import InMemory, LabelledImages
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.properties import Measurements, measure_images
from hansfree.discovery.suspects import Suspects, find_suspects, relevance_features
from hansfree.errors import DataError
from hansfree.evaluation.heatmaps import compute_heatmaps
from hansfree.models import architecture_named, build_model

SIZE = 48


def lesions(artifact: Artifact, share: float, *, count: int) -> InMemory:
    return InMemory(WithArtifact(SyntheticLesions(count, size=SIZE), artifact, share=share, only_class=0))


def noise(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return uninformative features and logits."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(len(labels), 12)), rng.normal(size=(len(labels), labels.max() + 1))


def search(labels: np.ndarray, **changed: Any) -> Suspects:
    """Search among noise."""
    features, logits = noise(labels)
    names = tuple("abcd"[: labels.max() + 1])
    measured = Measurements(("brightness",), np.random.default_rng(1).normal(size=(len(labels), 1)))
    given = {"features": features, "logits": logits, "class_names": names, "measured": measured, "permutations": 99}
    return find_suspects(labels=labels, **{**given, **changed})


@pytest.mark.slow
def test_images_with_a_timestamp_are_the_most_anomalous_cluster() -> None:
    count = 400  # with 60 images in a class the group is not called clear
    data = lesions(Timestamp(), 0.3, count=count)
    model = build_model("demo", classes=4, seed=0)
    pretrain(model, data, Pretraining(epochs=6))
    acts = collect_activations(model.eval(), architecture_named("demo").layer, data)
    logits = model(data.batch(range(count)).image).detach().numpy()
    suspects = find_suspects(
        acts.pooled, data.labels, logits, class_names=data.class_names, measured=measure_images(data), permutations=99
    )
    first = suspects.clusters[0]
    found = np.isin(np.arange(count), first.rows)
    assert first.label == 0
    assert first.level == "clear"
    assert (found & data.has_artifact).sum() >= 0.9 * data.has_artifact.sum()
    assert (found & data.has_artifact).sum() >= 0.9 * found.sum()
    assert first.sentence in suspects.verdict


def test_without_an_artifact_nothing_is_clear() -> None:
    data = lesions(Timestamp(), 0, count=160)
    suspects = search(data.labels, class_names=data.class_names, measured=measure_images(data))
    assert suspects.verdict.startswith("Nothing is clearly anomalous.")
    assert not suspects.is_loud
    assert suspects.clusters[0].anomaly < 0.1
    assert sum(found.level != "none" for found in suspects.clusters) <= 1
    assert sum(found.level != "none" for found in suspects.properties) <= 1


def test_the_same_seed_finds_the_same_and_json_is_read_back() -> None:
    labels = np.repeat([0, 1, 2], [40, 35, 10])
    suspects = search(labels)
    assert suspects.remarks == ("Too few images for clusters (below 30): 'c'.",)
    assert search(labels) == suspects
    assert Suspects.from_json(suspects.to_json()) == suspects


def test_a_broken_model_and_too_few_images_are_refused() -> None:
    labels = np.arange(40) % 2
    with pytest.raises(DataError, match="No class has 30 images"):
        search(labels)
    with pytest.raises(DataError, match="not finite"):
        search(labels, features=np.full((40, 3), np.nan))


def test_relevance_features_are_shares_of_each_heatmap_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.discovery.suspects._EXPLAINED", 4)
    images = LabelledImages(SyntheticLesions(6, size=32), np.zeros(6, dtype=bool))
    model = build_model("demo", classes=4, seed=0).eval()
    found = relevance_features(model, images, grid=4)
    maps = compute_heatmaps(model, images.batch(range(6)).image, torch.as_tensor(images.labels)).double().numpy()
    for row in range(6):
        cells = np.array([[maps[row, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8].sum() for j in range(4)] for i in range(4)])
        assert found[row] == pytest.approx(cells.ravel() / np.abs(cells).sum(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    "change", [lambda c: c.pop("clusters"), lambda c: c.update(format="other"), lambda c: c["properties"][0].pop("p")]
)
def test_damaged_json_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(search(np.repeat([0, 1], [30, 10])).to_json())
    change(content)
    for text in (json.dumps(content), "", "[]"):
        with pytest.raises(DataError, match="no suspects in the format"):
            Suspects.from_json(text)
