"""Suspects survive a JSON file."""

from __future__ import annotations

import json

import pytest

from hansfree.discovery.clustering import Cluster
from hansfree.discovery.properties import Property
from hansfree.discovery.suspects import Embedding, Suspects
from hansfree.errors import DataError


def example() -> Suspects:
    return Suspects(
        class_names=("a", "b"),
        n=40,
        seed=3,
        verdict="Something.",
        clusters=(
            Cluster(
                label=1, rows=(3, 5, 8), centre=(5,), anomaly=0.5, separation=9.0, chance=3.0, p=1e-9, confidence=0.9,
                distinct="brightness", distinct_auc=0.8, level="clear", sentence="They stand apart.",
            ),
        ),
        properties=(
            Property(
                name="width", label=0, auc=0.6, p=0.2, error_auc=None, error_p=None, anomaly=0.0, level="none",
                sentence="Not told.",
            ),
        ),
        embeddings=(Embedding(label=1, rows=(3, 5), points=((0.5, 1.0), (2.0, -3.0))),),
        remarks=("One.",),
    )  # fmt: skip


def test_they_come_back_as_they_were() -> None:
    suspects = example()
    assert Suspects.from_json(suspects.to_json()) == suspects
    assert suspects.clusters[0].size == 3
    assert suspects.is_loud


@pytest.mark.parametrize(
    "change", [lambda c: c.pop("clusters"), lambda c: c.update(format="other"), lambda c: c["properties"][0].pop("p")]
)
def test_a_damaged_file_is_refused(change: object) -> None:
    content = json.loads(example().to_json())
    change(content)  # type: ignore[operator]
    with pytest.raises(DataError, match="no suspects in the format"):
        Suspects.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no suspects in the format"):
        Suspects.from_json(text)
