"""CelebA in its official layout, made tiny: subset, split, collars, checks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hansfree.data.biased import SETS
from hansfree.data.examples import normalisation_for
from hansfree.errors import DataError, OptionError
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.natural_images import CelebA, choose_subset
from tests.paper.conftest import ATTRIBUTES, BLONDE, COLLAR, FACES, attributes, face

DATASET = "celeba"


def write_list(root, lines, *, count=FACES):
    text = "\n".join([str(count), " ".join(ATTRIBUTES), *lines])
    (root / "list_attr_celeba.txt").write_text(text + "\n")


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


def test_the_official_numbers_are_within_the_luck_of_the_draw():
    collar = np.zeros(202_599, dtype=bool)
    collar[:14_732] = True
    sizes = [len(choose_subset(collar, share=CelebA.subset_share, seed=seed)) for seed in range(5)]
    assert CelebA.subset_share == 0.1
    assert np.abs(np.array(sizes) - 33_519).max() < 4 * 35


def test_hair_is_the_class_and_the_necktie_is_the_bit(root):
    study = BenchmarkDataset.named("celeba")(root, size=32)
    data = study.data("resnet18")
    assert data.train.class_names[data.biased_class] == "blonde"
    assert not data.is_inserted
    assert not data.has_masks
    assert data.is_localized
    assert data.clean_train is None
    for part in SETS:
        examples = getattr(data, part)
        assert examples.labels.tolist() == [BLONDE[row] for row in examples.ids]
        assert examples.has_artifact.tolist() == [COLLAR[row] for row in examples.ids]
    image, mask = data.test_biased.pixels(0)
    assert abs(int(image[0, 0, 0]) - int(data.test_biased.ids[0])) <= 4  # the picture of that very row
    assert image.shape == (32, 32, 3)
    assert not mask.any()


def test_every_model_gets_its_own_normalisation(root):
    study = CelebA(root, size=32)
    for model in ("resnet18", "efficientnet_lite0"):
        data = study.data(model)
        assert {getattr(data, part).transform for part in SETS} == {normalisation_for(model)}


def test_the_parts_are_disjoint_and_each_has_the_same_share_of_every_kind(root):
    data = CelebA(root, size=32).data("vgg16")
    parts = {
        "train": data.train.ids,
        "val": np.concatenate([data.val_clean.ids, data.val_biased.ids]),
        "test": np.concatenate([data.test_clean.ids, data.test_biased.ids]),
    }
    ids = np.concatenate(list(parts.values()))
    collar = COLLAR
    assert sorted(ids) == choose_subset(collar, share=0.9, seed=0).tolist()
    for part, share in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
        for blonde in (False, True):
            for with_collar in (False, True):
                kind = [BLONDE[row] == blonde and COLLAR[row] == with_collar for row in ids]
                found = sum(BLONDE[row] == blonde and COLLAR[row] == with_collar for row in parts[part])
                assert abs(found - share * sum(kind)) <= 1


def test_nobody_is_in_two_parts_where_the_identities_are_known(root):
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


def test_remarks_say_what_the_numbers_cannot(root):
    study = CelebA(root, size=32)
    data = study.data("vgg16")
    rare = [int(part.labels.sum()) for part in (data.val_biased, data.test_biased)]
    assert 0 < rare[0] < 5
    missing, few = study.remarks
    assert missing == "identity_CelebA.txt is missing: images of one person may be in different parts."
    assert few.startswith(f"Only {rare[0]} validation and {rare[1]} test images are blonde with a necktie: ")


def test_kaggles_table_gives_the_same(root):
    official = CelebA(root, size=32).data("vgg16").train.fingerprint
    (root / "list_attr_celeba.txt").unlink()
    header = ",".join(["image_id", *ATTRIBUTES])
    (root / "list_attr_celeba.csv").write_text("\n".join([header, *(attributes(row, ",") for row in range(FACES))]))
    assert CelebA(root, size=32).data("vgg16").train.fingerprint == official


def test_the_lower_edge_where_collars_are_is_kept(root):
    picture = np.zeros((27, 22, 3), dtype=np.uint8)
    picture[-3:] = 255
    Image.fromarray(picture).save(root / "img_align_celeba" / face(0), quality=95)
    assert CelebA(root, size=32).source.image(0)[-1].min() > 200


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace("120\n", "119\n", 1), r"announces '119' images in its first line, but lists 120"),
        (lambda text: text.replace("Blond_Hair", "Blonde_Hair"), r"no attribute 'Blond_Hair' .*mean 'Blonde_Hair'\?"),
        (lambda text: text.replace(attributes(6), attributes(6) + " 1"), r"has 6 values for 000007.jpg, not 5"),
        (
            lambda text: text.replace(attributes(1), f"{face(1)} -1 0 -1 -1 -1"),
            r"Blond_Hair of 000002.jpg is '0', not -1 or",
        ),
        (lambda text: text.replace(attributes(7), attributes(1)), r"lists 000002.jpg more than once"),
        (lambda text: "", r"has no attribute 'Blond_Hair'"),
    ],
)
def test_a_list_that_makes_no_sense_is_one_sentence_with_its_path(root, change, sentence):
    path = root / "list_attr_celeba.txt"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=sentence) as error:
        CelebA(root)
    assert str(path) in str(error.value)


def test_missing_lists_and_folders_are_named(root):
    (root / "list_attr_celeba.txt").rename(root / "attributes.txt")
    with pytest.raises(DataError, match=r"list_attr_celeba.txt is missing, and Kaggle's list_attr_celeba.csv too"):
        CelebA(root)
    with pytest.raises(OptionError, match="no artifact 'necktie'"):
        CelebA(root, artifact="necktie")


def test_images_that_are_not_drawn_need_not_be_there(root):
    collar = COLLAR
    undrawn = np.setdiff1d(np.arange(FACES), choose_subset(collar, share=0.9, seed=0))
    assert len(undrawn)
    for row in undrawn:
        (root / "img_align_celeba" / face(row)).unlink()
    assert not CelebA(root).skipped


def test_too_few_images_are_an_error_that_says_of_which_kind(root):
    lines = [attributes(row) if row % 12 else f"{face(row)} -1 -1 -1 1 -1" for row in range(FACES)]
    write_list(root, lines)
    with pytest.raises(DataError, match=r"no training image is blonde with a necktie"):
        CelebA(root)
