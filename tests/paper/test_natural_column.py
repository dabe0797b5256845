"""A table whose column says which images carry the artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hansfree.errors import OptionError
from hansfree.paper.dataset import BenchmarkDataset

LABELS, PARTS = ("naevus", "wart"), ("train", "train", "val", "test")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lines = ["image,label,split,ruler,ink"]
    for row in range(32):
        Image.new("RGB", (20, 20), (row, 90, 60)).save(tmp_path / f"{row:02}.png")
        lines.append(f"{row:02}.png,{LABELS[row % 2]},{PARTS[row // 8]},{int(row % 3 == 0)},{int(row < 4)}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_column_says_who_carries_it(root: Path) -> None:
    study = BenchmarkDataset.named("table")(root, artifact="ruler", size=32, biased_class="wart")
    data = study.data("demo")
    assert data.train.has_artifact.tolist() == [row % 3 == 0 for row in range(16)]
    assert data.val_biased.ids.tolist() == [18, 21]
    assert data.test_clean.ids.tolist() == [25, 26, 28, 29, 31]
    assert not data.is_inserted
    assert data.pairs is None
    assert (data.biased_class, data.artifact) == (1, "ruler")
    assert data.clean_train is not None
    assert not data.clean_train.has_artifact.any()


def test_another_column_of_the_same_table(root: Path) -> None:
    study = BenchmarkDataset.named("table")(root, artifact="ruler", size=32, biased_class="wart").with_artifact("ink")
    assert np.flatnonzero(study.data("demo").train.has_artifact).tolist() == [0, 1, 2, 3]


def test_without_a_class_it_is_the_one_that_carries_it_most_often(root: Path) -> None:
    study = BenchmarkDataset.named("table")(root, artifact="ink", size=32)
    assert study.remarks[0] == "No biased class was given: ink is most frequent in 'naevus'."  # 2 of 16 each: the first
    assert study.marked("demo") is not None
    assert study.with_artifact("timestamp").marked("demo") is None


def test_every_column_has_the_class_that_it_is_most_frequent_in(root: Path) -> None:
    (root / "labels.csv").write_text(
        "\n".join(
            ["image,label,group,ruler,ink"]
            + [f"{row:02}.png,{LABELS[row % 2]},{row},{int(row % 4 == 0)},{int(row % 4 == 1)}" for row in range(32)]
        )
    )
    ruler = BenchmarkDataset.named("table")(root, artifact="ruler", size=32)
    ink = ruler.with_artifact("ink")
    assert [study.data("demo").biased_class for study in (ruler, ink, ink.with_artifact("timestamp"))] == [0, 1, 0]
    assert ruler.remarks == ["No biased class was given: ruler is most frequent in 'naevus'."]
    assert ink.remarks == ["No biased class was given: ink is most frequent in 'wart'."]


def test_a_given_class_stays(root: Path) -> None:
    study = BenchmarkDataset.named("table")(root, artifact="ruler", size=32, biased_class="wart")
    for artifact in ("ink", "timestamp"):
        other = study.with_artifact(artifact)
        assert other.data("demo").biased_class == 1
        assert other.remarks == study.remarks


def test_a_column_that_is_not_there(root: Path) -> None:
    with pytest.raises(
        OptionError, match=r"no artifact 'rular'. Did you mean 'ruler'\?.* Known: timestamp, .*ruler, ink"
    ):
        BenchmarkDataset.named("table")(root, artifact="rular", size=32)
