"""Pediatric Bone Age in its official layout, with tiny pictures."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hansfree.data.artifacts import Brightness
from hansfree.errors import DataError
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.medical import BoneAge, bin_ages

IMAGES, TRUTH = "boneage-training-dataset", "boneage-training-dataset.csv"  # the official names

PAPERS_BINS = ("1-46 months", "47-91 months", "92-137 months", "138-182 months", "183-228 months")
AGES = [1, 228, *(months for months in (30, 60, 92, 120, 137, 150, 200) for _ in range(10))]


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    root = tmp_path_factory.mktemp("bone")
    (root / IMAGES).mkdir()
    rng = np.random.default_rng(0)
    lines = ["id,boneage,male"]
    for number, age in enumerate(AGES, start=1377):
        lines.append(f"{number},{age},{'True' if number % 2 else 'False'}")
        grey = rng.integers(0, 200, (32, 24), dtype=np.uint8)
        Image.fromarray(grey).save(root / IMAGES / f"{number}.png")
    (root / TRUTH).write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def root(official, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(official, tmp_path / "copy")


def test_the_papers_range_gives_the_papers_bins():
    labels, names = bin_ages(list(range(1, 229)), Path("t.csv"))
    assert names == PAPERS_BINS
    assert names[BoneAge.biased_class] == "92-137 months"
    inside = [age for age, label in zip(range(1, 229), labels) if label == BoneAge.biased_class]
    assert (inside[0], inside[-1]) == (92, 137)


@given(st.lists(st.integers(0, 300), min_size=2, max_size=40).filter(lambda ages: max(ages) - min(ages) >= 5))
def test_bins_are_of_equal_width_and_named_by_what_is_in_them(ages):
    labels, names = bin_ages(ages, Path("t.csv"))
    edges = np.linspace(min(ages), max(ages), 6)
    for age, label in zip(ages, labels):
        start, end = map(int, names[label].removesuffix(" months").split("-"))
        assert start <= age <= end
        assert edges[label] - 1e-9 <= age <= edges[label + 1] + 1e-9


def test_the_sets_are_the_papers(official):
    assert BenchmarkDataset.named("bone_age") is BoneAge
    assert BoneAge.artifacts[0] == "brightness"
    assert {"timestamp", "lsb"} <= set(BoneAge.artifacts)
    study = BoneAge(official, size=32)
    assert study.remarks == [f"{TRUTH} names no patients: two images of one patient may be in different parts."]
    data = study.data("resnet18")
    assert data.train.class_names == PAPERS_BINS
    assert np.bincount(study.source.labels).tolist() == [11, 10, 30, 10, 11]
    sets = (data.train, data.val_clean, data.test_clean)
    assert [len(part) for part in sets] == pytest.approx([57.6, 7.2, 7.2], abs=1)
    assert len(np.unique(np.concatenate([part.ids for part in sets]))) == len(AGES)
    middle = data.train.labels == data.biased_class
    assert middle.sum() == 24
    assert data.train.has_artifact.sum() == data.train.has_artifact[middle].sum() == 5  # 20 %
    assert (data.artifact, data.is_localized) == ("brightness", False)
    assert data.train.artifact == Brightness(alpha=0.3)


def test_the_final_image_is_brighter_by_the_papers_rule(official):
    data = BoneAge(official, size=32).data("vgg16")
    clean, _ = data.test_clean.pixels(1)
    biased, _ = data.test_biased.pixels(1)
    assert clean.shape == (32, 32, 3)
    assert np.abs(biased - np.minimum(255, 0.7 * clean + 0.3 * 255)).max() <= 0.5 + 1e-9
    assert np.array_equal(clean[..., 0], clean[..., 2])


def test_the_seed_decides_and_the_folder_may_be_nested(root):
    first, other = BoneAge(root, size=32), BoneAge(root, size=32, seed=1)
    before = first.data("vgg16").train.fingerprint
    (root / IMAGES).rename(root / "inner")
    (root / IMAGES).mkdir()
    (root / "inner").rename(root / IMAGES / IMAGES)
    again = BoneAge(root, size=32)
    assert before == again.data("vgg16").train.fingerprint
    assert not np.array_equal(first.parts[2].ids, other.parts[2].ids)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("id,boneage,male", "id,bone_age,male", "has no column 'boneage'. Did you mean 'bone_age'"),
        ("1377,1,", "1377,1.5,", "gives image '1377' the boneage '1.5': it is in whole months"),
        ("1377,1,", "1377,,", "gives image '1377' the boneage ''"),
        ("1377,1,True", "1377,1", "has 2 values in row 2"),
    ],
)
def test_a_table_that_makes_no_sense_is_one_sentence(root, old, new, sentence):
    text = (root / TRUTH).read_text()
    assert old in text
    (root / TRUTH).write_text(text.replace(old, new))
    with pytest.raises(DataError, match=rf"boneage-training-dataset\.csv {sentence}"):
        BoneAge(root)


def test_ages_that_are_all_alike_are_refused():
    with pytest.raises(DataError, match=r"t\.csv has ages from 100 to 104 months: too few for 5 bins"):
        bin_ages([100, 104, 102], Path("t.csv"))


def test_files_and_table_must_match(root):
    (root / IMAGES / "1400.png").rename(root / IMAGES / "9999.png")
    with pytest.raises(DataError, match=r"9999\.png is not in the table"):
        BoneAge(root)
    study = BoneAge(root, size=32, skip_bad=True)
    assert [Path(line.split(" ")[0]).name for line in study.skipped] == ["9999.png", "1400.png"]
    assert len(study.source) == len(AGES) - 1
    (root / TRUTH).unlink()
    with pytest.raises(DataError, match=r"boneage-training-dataset\.csv is missing"):
        BoneAge(root, skip_bad=True)


def test_what_is_left_must_still_be_three_parts(root):
    kept = set(BoneAge(root, size=32).parts[0].ids)
    for row in range(len(AGES)):
        if row not in kept:
            (root / IMAGES / f"{1377 + row}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"training-dataset\.csv has no validation image that can be read"):
        BoneAge(root, size=32, skip_bad=True)
