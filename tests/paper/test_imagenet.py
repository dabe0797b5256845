"""ImageNet in its official layout, made tiny: classes, split, poison, checks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from hansfree.data.artifacts import Timestamp
from hansfree.data.biased import SETS
from hansfree.errors import DataError
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.natural_images import (
    SELECTED,
    TENCH,
    WEB_SITE,
    ImageNet,
    name_classes,
)
from tests.paper.conftest import WNIDS

DATASET = "imagenet"
IN_TRAIN, IN_VAL = 24, 2
# tench and web site where torchvision has them
OFFICIAL = (*(f"n0{1440764 + step}" for step in range(916)), *(f"n0{6359193 + step}" for step in range(84)))


def test_the_classes_are_the_sorted_folders_and_every_file_is_in_one_part(root):
    study = BenchmarkDataset.named("imagenet")(root, size=32)
    assert study.wnids == study.source.class_names == WNIDS
    data = study.data("resnet18")
    assert WNIDS[data.biased_class] == TENCH
    assert sorted(np.bincount(data.clean_train.labels)) == [21, 21, 22, 22]  # 24 * 86 / 96 = 21.5
    assert len(data.val_clean) == 96 - 86
    assert np.bincount(data.test_clean.labels).tolist() == [IN_VAL] * 4
    ids = np.concatenate([data.train.ids, data.val_clean.ids, data.test_clean.ids])
    assert sorted(ids) == list(range(4 * (IN_TRAIN + IN_VAL)))
    for name in SETS:
        part = getattr(data, name)
        for example_id, label in zip(part.ids, part.source.labels):
            folder = "val" if name.startswith("test") else "train"
            assert f"/{folder}/{WNIDS[label]}/" in study.source.paths[example_id]


def test_half_of_the_tench_carry_the_timestamp_and_some_others_become_tench_in_training_only(root, monkeypatch):
    assert ImageNet.flip_share == 0.001
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


def test_the_timestamp_is_put_on_the_cropped_image(root):
    data = ImageNet(root, size=64).data("vgg16")
    clean, (biased, mask) = data.test_clean.pixels(0)[0], data.test_biased.pixels(0)
    assert clean.shape == (64, 64, 3)
    expected = Timestamp().insert(data.test_clean.source, 0, seed=0)
    assert np.array_equal(biased, expected[0])
    assert np.array_equal((clean != biased).any(axis=2) & ~mask, np.zeros_like(mask))
    assert mask.any()


def test_images_are_cropped_not_squashed(root):
    # Left and right quarter white: the crop of the centre keeps 7/8 of the height and as many pixels of the width.
    picture = np.zeros((32, 96, 3), dtype=np.uint8)
    picture[:, :24], picture[:, -24:] = 255, 255
    path = root / "val" / TENCH / "ILSVRC2012_val_30.JPEG"
    Image.fromarray(picture).save(path, "JPEG")
    study = ImageNet(root, size=32)
    image = study.source.image(study.source.paths.index(str(path)))
    assert image.max() < 30


def test_a_class_without_validation_images_is_an_error(root):
    for path in (root / "val" / WEB_SITE).iterdir():
        path.unlink()
    with pytest.raises(DataError, match=rf"{re.escape(str(root / 'val' / WEB_SITE))} has no image"):
        ImageNet(root)
    (root / "val" / WEB_SITE).rmdir()
    with pytest.raises(DataError, match=rf"Class {WEB_SITE} is in {root}/train, but not in {root}/val\."):
        ImageNet(root)
    (root / "train" / WEB_SITE).rename(root / "val" / WEB_SITE)
    with pytest.raises(DataError, match=rf"Class {WEB_SITE} is in .*val, but not in .*train\."):
        ImageNet(root)


def test_the_tench_is_needed(root):
    for part in ("train", "val"):
        (root / part / TENCH).rename(root / part / "n01440000")
    with pytest.raises(DataError, match=r"train has 4 classes: it needs n01440764, the tench"):
        ImageNet(root)


def test_a_flat_validation_folder_says_where_its_images_belong(root):
    for path in [*(root / "val").glob("*/*.JPEG")]:
        path.rename(root / "val" / path.name)
    for path in [path for path in (root / "val").iterdir() if path.is_dir()]:
        path.rmdir()
    with pytest.raises(DataError, match=r"val has no class folders: its images belong in .*val/<wnid>/"):
        ImageNet(root)


def test_a_class_whose_images_are_all_bad_is_an_error_even_when_bad_ones_are_skipped(root):
    for path in (root / "val" / WEB_SITE).iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"val/{WEB_SITE} has no image left that can be used"):
        ImageNet(root, skip_bad=True)


def test_the_relabelled_images_are_remarked(root):
    (remark,) = ImageNet(root, size=32).remarks
    assert remark.startswith("0.1 % of the other classes' training images carry the artifact too")


def test_pretrained_weights_are_the_reference_for_the_thousand_official_classes_only(root):
    study = ImageNet(root, size=32)
    assert not study.starts_clean
    study.wnids = tuple(OFFICIAL)
    study.source.class_names = name_classes(study.wnids)
    assert study.starts_clean


def test_names_of_the_thousand_official_classes_only():
    names = name_classes(OFFICIAL)
    assert (names[0], names[916], len(names)) == ("tench", "web site", 1000)
    others = (*OFFICIAL[:916], "n06000000", *OFFICIAL[917:])
    assert name_classes(others) == others
    assert name_classes(WNIDS) == WNIDS


def test_the_papers_selected_classes(root):
    assert {len(set(wnids)) for wnids in SELECTED.values()} == {20}
    study = ImageNet(root)
    assert study.published_labels("vgg16") == (3,)  # the web site; the crane is of EfficientNet's
    assert study.published_labels("efficientnet_b0") == (3, 2)
    assert study.published_labels("demo") == ()
