"""Suspects of a user's own images: found in one pass, written beside the run, ready as marks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hansfree.discovery import opening as discovery
from hansfree.discovery.opening import open_unlabelled_images, search_suspects
from hansfree.discovery.suspects import Suspects
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
