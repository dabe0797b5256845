"""Suspects of a user's own images: found in one pass, written beside the run, ready as marks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree.discovery import opening as discovery
from hansfree.discovery.opening import open_unlabelled_images, search_suspects
from hansfree.discovery.suspects import Suspects
from hansfree.errors import OptionError
from hansfree.pipeline.config import read_run_file
from tests.pipeline.user import read_table, write_run, write_table


@pytest.fixture
def bare(user: Path) -> Path:
    """A user whose table has no artifact column."""
    rows = [(image, label, split) for image, label, _, split in read_table(user / "labels.csv")]
    write_table(user / "labels.csv", rows, ("image", "label", "split"))
    write_run(user / "run.yaml")
    return user


def test_everything_is_written_beside_the_run(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_BATCH", 50)
    monkeypatch.setattr("hansfree.activations.shards._IMAGES", 100)  # several shards
    prepared = open_unlabelled_images(read_run_file(bare / "run.yaml"))
    folder = bare / "run-label"
    folder.mkdir()
    (folder / "suspect-9.json").write_text("[]")  # of an earlier look
    looked = search_suspects(prepared)
    assert looked.page == folder / "suspects.html"
    assert Suspects.from_json((folder / "suspects.json").read_text(encoding="utf-8")) == looked.suspects
    assert sorted(folder.glob("suspect-*.json")) == sorted(looked.lists)
    assert looked.lists
    for path in looked.lists:
        cluster = looked.suspects.clusters[int(path.stem.partition("-")[2]) - 1]
        assert json.loads(path.read_text(encoding="utf-8")) == [prepared.names[row] for row in cluster.rows]
    assert not (bare / "run").exists()  # it has to be empty when the run begins
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    assert len(kept) == -(-len(prepared.images) // 100)
    discovery.collect_pooled(prepared)
    assert kept == {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}


def test_logits_from_the_cache_are_those_of_the_model(bare: Path) -> None:
    prepared = open_unlabelled_images(read_run_file(bare / "run.yaml"))
    passed = discovery.collect_pooled(prepared)
    with torch.no_grad():
        expected = prepared.model(prepared.images.batch(range(len(prepared.images))).image).numpy()
    assert np.allclose(passed.logits, expected, atol=1e-5)
    assert len(passed.pooled) == len(prepared.images)


def test_another_kind_of_features_is_refused(bare: Path) -> None:
    prepared = open_unlabelled_images(read_run_file(bare / "run.yaml"))
    with pytest.raises(OptionError, match="Did you mean 'relevance'"):
        search_suspects(prepared, by="relevanc")  # type: ignore[arg-type]
