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
from hansfree.data.artifacts import Artifact, Brightness, Timestamp
from hansfree.data.datasets import InMemory, LabelledImages
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.clustering import Cluster
from hansfree.discovery.properties import Property, compare_properties, measure_images
from hansfree.discovery.suspects import Embedding, Suspects, find_suspects, relevance_features
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.heatmaps import compute_heatmaps
from hansfree.models import architecture_named, build_model

COUNT, SIZE = 240, 48


def lesions(artifact: Artifact, share: float, *, count: int = COUNT) -> InMemory:
    return InMemory(WithArtifact(SyntheticLesions(count, size=SIZE), artifact, share=share, only_class=0))


def noise(labels: np.ndarray, *, channels: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return uninformative features and logits."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(len(labels), channels)), rng.normal(size=(len(labels), labels.max() + 1))


@pytest.mark.slow
def test_images_with_a_timestamp_are_the_most_anomalous_cluster() -> None:
    count = 480  # with 60 images in a class the group is not called clear
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
    assert Suspects.from_json(suspects.to_json()) == suspects


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_brighter_exposure_is_the_most_anomalous_property(seed: int) -> None:
    data = WithArtifact(SyntheticLesions(400, size=32, seed=seed), Brightness(), share=0.5, only_class=0, seed=seed)
    measured = measure_images(data)
    found = compare_properties(
        measured, data.labels, np.zeros(400, dtype=bool), class_names=data.class_names, permutations=99, seed=0
    )
    first, second, *_ = found
    assert (first.name, first.label, first.level, first.p) == ("brightness", 0, "clear", 0.01)
    assert "are brighter than the others" in first.sentence
    assert second.anomaly < 0.9 * first.anomaly


def test_without_an_artifact_nothing_is_clear() -> None:
    data = lesions(Timestamp(), 0)
    features, logits = noise(data.labels)
    suspects = find_suspects(
        features, data.labels, logits, class_names=data.class_names, measured=measure_images(data), permutations=99
    )
    assert suspects.verdict.startswith("Nothing is clearly anomalous.")
    assert not suspects.is_loud
    assert suspects.clusters[0].anomaly < 0.1
    assert sum(found.level != "none" for found in suspects.clusters) <= 1
    assert sum(found.level != "none" for found in suspects.properties) <= 1


def test_embeddings_hold_every_image_of_the_large_classes() -> None:
    labels = np.repeat([0, 1, 2], [40, 35, 10])
    features, logits = noise(labels)
    suspects = find_suspects(features, labels, logits, class_names=("a", "b", "c"))
    assert sorted(found.label for found in suspects.embeddings) == [0, 1]
    for found in suspects.embeddings:
        assert found.rows == tuple(np.flatnonzero(labels == found.label))
        assert np.isfinite(found.points).all()
        assert np.unique(found.points, axis=0).shape == (len(found.rows), 2)
    assert suspects.properties == ()
    assert suspects.remarks == ("Too few images for clusters (below 30): 'c'.",)
    again = find_suspects(features, labels, logits, class_names=("a", "b", "c"))
    assert again == suspects


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"features": np.zeros((39, 3))}, DataError, "40 labels need as many rows of features"),
        ({"logits": np.zeros((40, 3))}, DataError, "40 images of 2 classes need logits"),
        ({"features": np.full((40, 3), np.nan)}, DataError, "not finite"),
        ({"labels": np.full(40, 2)}, DataError, "Labels run from 0 to 1"),
        ({"labels": np.arange(40) % 2}, DataError, "No class has 30 images"),
        ({"permutations": 18}, OptionError, "below 19 no p-value"),
        ({"seed": -1}, OptionError, "A seed is 0 or more"),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, object], error: type[Exception], sentence: str) -> None:
    given = {"features": np.zeros((40, 3)), "labels": np.zeros(40, dtype=int), "logits": np.zeros((40, 2)), **change}
    with pytest.raises(error, match=sentence):
        find_suspects(class_names=("a", "b"), **given)  # type: ignore[arg-type]


def test_relevance_features_are_shares_of_each_heatmap_by_cell() -> None:
    images = LabelledImages(SyntheticLesions(6, size=32), np.zeros(6, dtype=bool))
    model = build_model("demo", classes=4, seed=0).eval()
    found = relevance_features(model, images, grid=4, batch_size=4)
    maps = compute_heatmaps(model, images.batch(range(6)).image, torch.as_tensor(images.labels)).double().numpy()
    for row in range(6):
        cells = np.array([[maps[row, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8].sum() for j in range(4)] for i in range(4)])
        assert found[row] == pytest.approx(cells.ravel() / np.abs(cells).sum(), rel=1e-3, abs=1e-5)


def example() -> Suspects:
    return Suspects(
        class_names=("a", "b"),
        n=40,
        seed=3,
        verdict="Something.",
        clusters=(
            Cluster(
                label=1, rows=(3, 5, 8), centre=(5,), anomaly=0.5, separation=9.0, chance=3.0, p=1e-9, confidence=0.9,
                distinct="brightness", distinct_auc=0.8, level="clear", sentence="They are separate.",
            ),
        ),
        properties=(
            Property(
                name="width", label=0, auc=0.6, p=0.2, error_auc=None, error_p=None, anomaly=0.0, level="none",
                sentence="No difference.",
            ),
        ),
        embeddings=(Embedding(label=1, rows=(3, 5), points=((0.5, 1.0), (2.0, -3.0))),),
        remarks=("One.",),
    )  # fmt: skip


def test_json_is_read_back() -> None:
    suspects = example()
    assert Suspects.from_json(suspects.to_json()) == suspects
    assert suspects.clusters[0].size == 3
    assert suspects.is_loud


@pytest.mark.parametrize(
    "change", [lambda c: c.pop("clusters"), lambda c: c.update(format="other"), lambda c: c["properties"][0].pop("p")]
)
def test_damaged_json_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(example().to_json())
    change(content)
    for text in (json.dumps(content), "", "[]"):
        with pytest.raises(DataError, match="no suspects in the format"):
            Suspects.from_json(text)
