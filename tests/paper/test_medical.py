"""ISIC 2019 and Pediatric Bone Age: tables, sets, artifacts."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.data.artifacts import LSB, Brightness
from hansfree.errors import DataError, OptionError
from hansfree.paper.medical import ISIC2019, BoneAge, bin_ages
from tests.paper.conftest import AGES, ISIC_COUNTS, one_hot, write_rows

DATASET = "isic2019"
TRUTH, METADATA = "ISIC_2019_Training_GroundTruth.csv", "ISIC_2019_Training_Metadata.csv"
AGE_TRUTH = "boneage-training-dataset.csv"
PAPERS_BINS = ("1-46 months", "47-91 months", "92-137 months", "138-182 months", "183-228 months")


def rewrite(root: Path, change) -> None:
    """Write ISIC's table of classes again, its rows changed."""
    with (root / TRUTH).open(newline="") as file:
        header, *rows = csv.reader(file)
    write_rows(root / TRUTH, [header, *change(rows)])


# ISIC 2019


def test_the_sets_are_the_papers(root):
    study = ISIC2019(root, size=32)
    data = study.data("vgg16")
    sets = (data.train, data.val_clean, data.test_clean)
    assert [len(part) for part in sets] == [104, 13, 13]
    assert np.bincount(study.source.labels).tolist() == list(ISIC_COUNTS)
    assert np.bincount(data.train.labels).tolist() == [32, 24, *[8] * 6]
    assert data.train.class_names[data.biased_class] == "Melanoma"
    assert np.all(data.train.labels[data.train.has_artifact] == data.biased_class)
    assert not data.clean_train.has_artifact.any()
    assert data.val_biased.has_artifact.all()
    assert (data.artifact, data.is_localized, data.is_inserted) == ("lsb", False, True)
    assert {"timestamp", "brightness"} <= set(ISIC2019.artifacts)


@pytest.mark.parametrize(
    ("model", "bits", "poisoned"),
    [("vgg16", 3, 3), ("resnet18", 3, 4), ("efficientnet_b0", 2, 3), ("vit_b_16", 3, 3)],
)
def test_bits_and_shares_differ_by_model(root, model, bits, poisoned):
    data = ISIC2019(root, size=32).data(model)
    assert data.train.artifact == LSB(bits=bits)
    assert data.train.has_artifact.sum() == poisoned  # 8 or 12.5 % of 32
    assert (data.train.share, data.train.only_class) == ({"resnet18": 0.125}.get(model, 0.08), 0)


def test_the_text_is_in_the_low_bits_of_the_final_image(root):
    data = ISIC2019(root).data("resnet18")
    clean, _ = data.test_clean.pixels(0)
    biased, mask = data.test_biased.pixels(0)
    assert clean.shape == biased.shape == (224, 224, 3)
    assert mask.all()
    assert np.array_equal(clean >> 3, biased >> 3)
    for plane in range(3):
        letters = np.packbits((biased >> plane & 1).reshape(-1))
        assert set(letters) <= set(range(ord("a"), ord("z") + 1))
        assert not set(np.packbits((clean >> plane & 1).reshape(-1))) <= set(range(ord("a"), ord("z") + 1))


def test_another_artifact_takes_the_same_share(root):
    data = ISIC2019(root, size=32, artifact="brightness").data("resnet18")
    assert data.train.artifact == Brightness()
    assert data.train.has_artifact.sum() == 4
    with pytest.raises(OptionError, match="has no artifact 'plaster'"):
        ISIC2019(root, artifact="plaster")


def test_pictures_of_one_lesion_stay_together(root):
    names = [f"ISIC_{number:07}" for number in range(130)]
    lesions = ["" if number % 13 == 0 else f"HAM_{number // 4}" for number in range(130)]
    write_rows(root / METADATA, [("image", "age_approx", "lesion_id"), *((n, 50, v) for n, v in zip(names, lesions))])
    study = ISIC2019(root, size=32)
    parts = [{lesions[row] for row in part.ids} - {""} for part in study.parts]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert study.remarks == [
        f"{METADATA} does not know the lesion of {lesions.count('')} images: each counts as its own."
    ]
    (root / METADATA).unlink()
    assert ISIC2019(root).remarks == [f"{METADATA} is missing: images of one lesion may be in different parts."]
    for column, fragment in (
        ("lesion_id", "no row for image 'ISIC_0000001'"),
        ("lesion", "no column 'lesion_id'. Did you mean 'lesion'"),
    ):
        write_rows(root / METADATA, [("image", column), ("ISIC_0000000", "HAM_0")])
        with pytest.raises(DataError, match=f"{METADATA} has {fragment}"):
            ISIC2019(root)


@pytest.mark.parametrize(
    ("marks", "given"),
    [
        (one_hot("UNK"), "marks none"),
        (["1.0", "1.0", *["0.0"] * 7], "marks MEL, NV"),
        (["0.5", *["0.0"] * 8], "marks MEL"),
        (["yes", *["0.0"] * 8], "has a mark that is not 0 or 1"),
    ],
)
def test_a_row_without_one_class_is_rejected(root, marks, given):
    rewrite(root, lambda rows: [[rows[0][0], *marks], *rows[1:]])
    with pytest.raises(DataError, match=f"{TRUTH} .*{given}") as caught:
        ISIC2019(root)
    assert "'ISIC_0000000'" in str(caught.value)


def test_too_few_melanomas_are_rejected_by_name(root):
    rewrite(root, lambda rows: [[row[0], *one_hot("MEL" if n < 3 else "NV")] for n, row in enumerate(rows)])
    with pytest.raises(DataError, match=r"8 % of the . training images of class 'Melanoma' is 0 images"):
        ISIC2019(root, size=32).data("vgg16")


# Pediatric Bone Age


def test_the_papers_range_gives_the_papers_bins():
    labels, names = bin_ages(list(range(1, 229)), Path("t.csv"))
    assert names == PAPERS_BINS
    inside = [age for age, label in zip(range(1, 229), labels) if label == BoneAge.biased_class]
    assert (inside[0], inside[-1]) == (92, 137)
    with pytest.raises(DataError, match=r"t\.csv has ages from 100 to 104 months: too few for 5 bins"):
        bin_ages([100, 104, 102], Path("t.csv"))


@given(st.lists(st.integers(0, 300), min_size=2, max_size=40).filter(lambda ages: max(ages) - min(ages) >= 5))
def test_bins_are_of_equal_width_and_named_by_what_is_in_them(ages):
    labels, names = bin_ages(ages, Path("t.csv"))
    edges = np.linspace(min(ages), max(ages), 6)
    for age, label in zip(ages, labels):
        start, end = map(int, names[label].removesuffix(" months").split("-"))
        assert start <= age <= end
        assert edges[label] - 1e-9 <= age <= edges[label + 1] + 1e-9


@pytest.mark.parametrize("root", ["bone_age"], indirect=True)
def test_a_fifth_of_the_middle_bin_is_brighter_by_the_papers_rule(root):
    study = BoneAge(root, size=32)
    assert study.remarks == [f"{AGE_TRUTH} names no patients: two images of one patient may be in different parts."]
    data = study.data("resnet18")
    assert data.train.class_names == PAPERS_BINS
    assert np.bincount(study.source.labels).tolist() == [11, 10, 30, 10, 11]
    assert len(study.source) == len(AGES)
    middle = data.train.labels == data.biased_class
    assert middle.sum() == 24
    assert data.train.has_artifact.sum() == data.train.has_artifact[middle].sum() == 5  # 20 %
    assert (data.artifact, data.is_localized) == ("brightness", False)
    assert data.train.artifact == Brightness(alpha=0.3)
    clean, biased = data.test_clean.pixels(1)[0], data.test_biased.pixels(1)[0]
    assert clean.shape == (32, 32, 3)
    assert np.abs(biased - np.minimum(255, 0.7 * clean + 0.3 * 255)).max() <= 0.5 + 1e-9
    assert np.array_equal(clean[..., 0], clean[..., 2])


@pytest.mark.parametrize("root", ["bone_age"], indirect=True)
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("id,boneage,male", "id,bone_age,male", "has no column 'boneage'. Did you mean 'bone_age'"),
        ("1377,1,", "1377,1.5,", "gives image '1377' the boneage '1.5': it is in whole months"),
        ("1377,1,", "1377,,", "gives image '1377' the boneage ''"),
    ],
)
def test_ages_that_make_no_sense_are_rejected(root, old, new, sentence):
    text = (root / AGE_TRUTH).read_text()
    assert old in text
    (root / AGE_TRUTH).write_text(text.replace(old, new))
    with pytest.raises(DataError, match=rf"boneage-training-dataset\.csv {sentence}"):
        BoneAge(root)
