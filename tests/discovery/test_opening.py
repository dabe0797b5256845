"""A run file without artifact labels: images, model and suspects, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hansfree.discovery import opening
from hansfree.discovery.opening import UnlabelledImages, open_unlabelled_images, search_suspects
from hansfree.discovery.suspects import Suspects
from hansfree.errors import DataError
from hansfree.pipeline.config import read_run_file
from tests.pipeline.user import CLASSES, read_table, write_run, write_table

HEADER = ("image", "label", "split")


@pytest.fixture
def bare(user: Path) -> Path:
    """A user whose table has no artifact column."""
    rows = [(image, label, split) for image, label, _, split in read_table(user / "labels.csv")]
    write_table(user / "labels.csv", rows, HEADER)
    return user


def prepared(user: Path, **sections: object) -> UnlabelledImages:
    return open_unlabelled_images(read_run_file(write_run(user / "run.yaml", **sections)))


def test_all_images_are_there_in_the_order_of_the_table(bare: Path) -> None:
    found = prepared(bare)
    rows = read_table(bare / "labels.csv")
    assert found.images.class_names == CLASSES
    assert list(found.names) == [row[0] for row in rows]
    assert [CLASSES[label] for label in found.images.labels] == [row[1] for row in rows]
    assert [tuple(row.values()) for row in found.rows] == rows
    assert not found.images.has_artifact.any()
    assert all(Path(path).is_file() for path in found.paths)
    with torch.no_grad():
        assert found.model(found.images.batch([0, 1]).image).shape == (2, 2)
    assert not found.model.training
    assert found.layer
    assert [name for name, _ in found.facts][:3] == ["model", "layer", "images"]


def test_bad_pictures_are_left_out_of_everything(bare: Path) -> None:
    first, second, *_ = read_table(bare / "labels.csv")
    (bare / first[0]).write_text("no picture")
    with pytest.raises(DataError, match="skip_bad"):
        prepared(bare)
    found = prepared(bare, data={"skip_bad": True})
    assert found.names[0] == second[0]
    assert found.images.ids[0] == 1  # what keys an image's randomness stays
    assert [name for name, _ in found.facts].count("left out") == 1
    assert len({len(found.names), len(found.paths), len(found.rows), len(found.images)}) == 1


def test_everything_is_written_beside_the_run(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_BATCH", 50)
    monkeypatch.setattr("hansfree.activations.shards._IMAGES", 100)  # several shards
    found = prepared(bare)
    folder = bare / "run-label"
    folder.mkdir()
    (folder / "suspect-9.json").write_text("[]")  # of an earlier search
    search = search_suspects(found)
    assert search.page == folder / "suspects.html"
    assert Suspects.from_json((folder / "suspects.json").read_text(encoding="utf-8")) == search.suspects
    assert sorted(folder.glob("suspect-*.json")) == sorted(search.lists)
    assert search.lists
    for path in search.lists:
        cluster = search.suspects.clusters[int(path.stem.partition("-")[2]) - 1]
        assert json.loads(path.read_text(encoding="utf-8")) == [found.names[row] for row in cluster.rows]
    assert not (bare / "run").exists()  # it has to be empty when the run begins
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    assert len(kept) == -(-len(found.images) // 100)
    opening.collect_pooled(found)
    assert kept == {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
