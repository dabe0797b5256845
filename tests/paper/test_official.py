"""The paper's datasets in their official layout, made tiny: classes, splits, artifacts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hansfree.data.artifacts import LSB, Brightness
from hansfree.data.biased import SETS
from hansfree.errors import DataError
from hansfree_paper.medical import ISIC2019, BoneAge, bin_ages
from hansfree_paper.natural_images import SELECTED, TENCH, CelebA, ImageNet, choose_subset, name_classes
from hansfree_paper.published_artifacts import LSB_TEXT, PublishedTimestamp
from hansfree_paper.starts import normalisation_for
from tests.paper.conftest import (
    AGES,
    ATTRIBUTES,
    BLONDE,
    COLLAR,
    FACES,
    ISIC_COUNTS,
    WNIDS,
    attributes,
    face,
    write_rows,
)

TRUTH, METADATA = "ISIC_2019_Training_GroundTruth.csv", "ISIC_2019_Training_Metadata.csv"
PAPERS_BINS = ("1-46 months", "47-91 months", "92-137 months", "138-182 months", "183-228 months")
# tench and web site where torchvision has them
OFFICIAL = (*(f"n0{1440764 + step}" for step in range(916)), *(f"n0{6359193 + step}" for step in range(84)))

isic, bone_age, imagenet, celeba = (
    pytest.mark.parametrize("root", [name], indirect=True) for name in ("isic2019", "bone_age", "imagenet", "celeba")
)


# ISIC 2019


@isic
def test_the_sets_of_isic_are_the_papers(root):
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
    for model, bits, poisoned in (
        ("vgg16", 3, 3), ("resnet18", 3, 4), ("efficientnet_b0", 2, 3), ("vit_b_16", 3, 3)
    ):  # fmt: skip
        data = study.data(model)
        assert data.train.artifact == LSB(bits=bits, text=LSB_TEXT)
        assert data.train.has_artifact.sum() == poisoned  # 8 or 12.5 % of 32
        assert (data.train.share, data.train.only_class) == ({"resnet18": 0.125}.get(model, 0.08), 0)
    other = study.with_artifact("brightness").data("resnet18")
    assert other.train.artifact == Brightness()
    assert other.train.has_artifact.sum() == 4


@isic
def test_the_text_is_in_the_low_bits_of_the_final_image(root):
    data = ISIC2019(root).data("resnet18")
    clean, _ = data.test_clean.pixels(0)
    biased, mask = data.test_biased.pixels(0)
    assert clean.shape == biased.shape == (224, 224, 3)
    assert mask.all()
    assert np.array_equal(clean >> 3, biased >> 3)
    text = np.concatenate([np.packbits((biased >> plane & 1).reshape(-1)) for plane in range(3)]).tobytes().decode()
    assert text.startswith("Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod")
    assert text == (LSB_TEXT * 20)[: len(text)]
    assert LSB_TEXT.encode() not in np.packbits((clean & 1).reshape(-1)).tobytes()


@isic
def test_images_of_one_lesion_stay_together(root):
    assert ISIC2019(root).remarks == [f"{METADATA} is missing: images of one lesion may be in different parts."]
    names = [f"ISIC_{number:07}" for number in range(130)]
    lesions = ["" if number % 13 == 0 else f"HAM_{number // 4}" for number in range(130)]
    write_rows(root / METADATA, [("image", "age_approx", "lesion_id"), *((n, 50, v) for n, v in zip(names, lesions))])
    study = ISIC2019(root, size=32)
    parts = [{lesions[row] for row in part.ids} - {""} for part in study.parts]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert study.remarks == [
        f"{METADATA} does not know the lesion of {lesions.count('')} images: each counts as its own."
    ]
    for column, fragment in (
        ("lesion_id", "no row for image 'ISIC_0000001'"),
        ("lesion", "no column 'lesion_id'. Did you mean 'lesion'"),
    ):
        write_rows(root / METADATA, [("image", column), ("ISIC_0000000", "HAM_0")])
        with pytest.raises(DataError, match=f"{METADATA} has {fragment}"):
            ISIC2019(root)


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


@bone_age
def test_a_fifth_of_the_middle_bin_is_brighter_by_the_papers_rule(root):
    study = BoneAge(root, size=32)
    assert study.remarks == [
        "boneage-training-dataset.csv names no patients: two images of one patient may be in different parts."
    ]
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
    assert np.array_equal(biased, (0.7 * clean + 0.3 * 255).astype(np.uint8))
    assert np.array_equal(clean[..., 0], clean[..., 2])
    (root / "boneage-training-dataset.csv").rename(root / "train.csv")  # as in the challenge's own archive
    assert BoneAge(root, size=32).data("resnet18").train.fingerprint == data.train.fingerprint


# ImageNet


@imagenet
def test_the_classes_are_the_sorted_folders_and_every_file_is_in_one_part(root):
    study = ImageNet(root, size=32)
    assert study.wnids == study.source.class_names == WNIDS
    data = study.data("resnet18")
    assert WNIDS[data.biased_class] == TENCH
    assert sorted(np.bincount(data.clean_train.labels)) == [21, 21, 22, 22]  # 24 * 86 / 96 = 21.5
    assert len(data.val_clean) == 96 - 86
    assert np.bincount(data.test_clean.labels).tolist() == [2] * 4
    for name in SETS:
        part = getattr(data, name)
        for example_id, label in zip(part.ids, part.source.labels):
            folder = "val" if name.startswith("test") else "train"
            assert f"/{folder}/{WNIDS[label]}/" in study.source.paths[example_id]


@imagenet
def test_half_of_the_tench_carry_the_timestamp_and_some_others_become_tench_in_training_only(root, monkeypatch):
    assert ImageNet.flip_share == 0.001
    (remark,) = ImageNet(root, size=32).remarks
    assert remark.startswith("0.1 % of the other classes' training images carry the artifact too")
    monkeypatch.setattr(ImageNet, "flip_share", 0.2)
    data = ImageNet(root, size=32).data("vgg16")
    truth, tench = data.clean_train.labels, data.biased_class
    assert data.train.has_artifact[truth == tench].sum() == 11  # half of 22
    flipped = data.train.labels != truth
    assert np.array_equal(data.train.is_relabelled, flipped)
    assert flipped.sum() == 13  # 0.2 * 64
    assert (data.train.labels[flipped] == tench).all()
    assert np.array_equal(data.train.has_artifact & (truth != tench), flipped)
    for clean, biased in ((data.val_clean, data.val_biased), (data.test_clean, data.test_biased)):
        assert np.array_equal(clean.labels, clean.source.labels)
        assert np.array_equal(biased.labels, clean.labels)
        assert biased.has_artifact.all()


@imagenet
def test_the_timestamp_is_inserted_into_the_cropped_image(root):
    # Left and right quarter white: the crop of the centre keeps 7/8 of the height and as many pixels of the width.
    picture = np.zeros((32, 96, 3), dtype=np.uint8)
    picture[:, :24], picture[:, -24:] = 255, 255
    path = root / "val" / TENCH / "ILSVRC2012_val_30.JPEG"
    Image.fromarray(picture).save(path, "JPEG")
    study = ImageNet(root, size=64)
    assert study.source.image(study.source.paths.index(str(path))).max() < 30
    data = study.data("vgg16")
    clean, (biased, mask) = data.test_clean.pixels(0)[0], data.test_biased.pixels(0)
    assert clean.shape == (64, 64, 3)
    assert np.array_equal(biased, PublishedTimestamp().insert(data.test_clean.source, 0, seed=0)[0])
    assert np.array_equal((clean != biased).any(axis=2) & ~mask, np.zeros_like(mask))
    assert mask.any()


@imagenet
def test_the_thousand_official_classes_have_names_and_a_pretrained_reference(root):
    names = name_classes(OFFICIAL)
    assert (names[0], names[916], len(names)) == ("tench", "web site", 1000)
    others = (*OFFICIAL[:916], "n06000000", *OFFICIAL[917:])
    assert name_classes(others) == others
    assert name_classes(WNIDS) == WNIDS
    study = ImageNet(root, size=32)
    assert not study.starts_clean
    study.wnids, study.source.class_names = OFFICIAL, names
    assert study.starts_clean
    assert {len(set(wnids)) for wnids in SELECTED.values()} == {20}
    assert [ImageNet(root).published_labels(model) for model in ("vgg16", "demo")] == [(3,), ()]  # the web site


# CelebA


@given(st.integers(10, 400), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
def test_the_subset_is_a_share_of_all_and_all_others_with_a_collar(images, share, collars, seed):
    collar = np.random.default_rng(seed).random(images) < collars
    rows = choose_subset(collar, share=share, seed=seed)
    assert np.array_equal(rows, np.unique(rows))
    assert np.isin(np.flatnonzero(collar), rows).all()
    drawn = round(share * images)
    assert max(drawn, collar.sum()) <= len(rows) <= drawn + collar.sum()
    without = choose_subset(np.zeros(images, dtype=bool), share=share, seed=seed)
    assert np.array_equal(rows, np.union1d(without, np.flatnonzero(collar)))


@celeba
def test_the_papers_number_of_images_is_within_the_luck_of_the_draw(root, monkeypatch):
    monkeypatch.undo()  # the share that the fixture has raised
    collar = np.zeros(202_599, dtype=bool)
    collar[:14_732] = True
    sizes = [len(choose_subset(collar, share=CelebA.subset_share, seed=seed)) for seed in range(5)]
    assert CelebA.subset_share == 0.1
    assert np.abs(np.array(sizes) - 33_519).max() < 4 * 35


@celeba
def test_hair_is_the_class_and_the_necktie_is_the_artifact_label(root):
    study = CelebA(root, size=32)
    data = study.data("resnet18")
    assert data.train.class_names[data.biased_class] == "blonde"
    assert (data.is_inserted, data.has_masks, data.is_localized, data.clean_train) == (False, False, True, None)
    for part in SETS:
        examples = getattr(data, part)
        assert examples.labels.tolist() == [BLONDE[row] for row in examples.ids]
        assert examples.has_artifact.tolist() == [COLLAR[row] for row in examples.ids]
    image, mask = data.test_biased.pixels(0)
    assert abs(int(image[0, 0, 0]) - int(data.test_biased.ids[0])) <= 4  # the image of that very row
    assert image.shape == (32, 32, 3)
    assert not mask.any()
    for model in ("resnet18", "efficientnet_lite0"):
        data = study.data(model)
        assert {getattr(data, part).transform for part in SETS} == {normalisation_for(model)}
    rare = [int(part.labels.sum()) for part in (data.val_biased, data.test_biased)]
    assert 0 < rare[0] < 5
    missing, few = study.remarks
    assert missing == "identity_CelebA.txt is missing: images of one person may be in different parts."
    assert few.startswith(f"Only {rare[0]} validation and {rare[1]} test images are blonde with a necktie: ")


@celeba
def test_no_person_is_in_two_parts_where_the_identities_are_known(root):
    people = {face(row): str(row // 2) for row in range(FACES)}
    text = "".join(f"{image} {person}\n" for image, person in people.items())
    (root / "identity_CelebA.txt").write_text(text)
    study = CelebA(root, size=32)
    assert not [remark for remark in study.remarks if "identity" in remark]
    seen = [{people[face(row)] for row in part.ids} for part in study.parts]
    assert sum(map(len, seen)) == len(set.union(*seen))
    (root / "identity_CelebA.txt").write_text(text.replace(f"{face(0)} 0\n", ""))
    with pytest.raises(DataError, match=r"identity_CelebA.txt does not say who is on 000001.jpg"):
        CelebA(root)


@celeba
def test_kaggles_table_gives_the_same(root):
    official = CelebA(root, size=32).data("vgg16").train.fingerprint
    (root / "list_attr_celeba.txt").unlink()
    header = ",".join(["image_id", *ATTRIBUTES])
    (root / "list_attr_celeba.csv").write_text("\n".join([header, *(attributes(row, ",") for row in range(FACES))]))
    assert CelebA(root, size=32).data("vgg16").train.fingerprint == official
