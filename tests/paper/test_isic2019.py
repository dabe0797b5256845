"""ISIC 2019 in its official layout, with tiny pictures."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

from hansfree.data.artifacts import LSB, Brightness
from hansfree.errors import DataError, OptionError
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.medical import CLASSES, ISIC2019

IMAGES, TRUTH = "ISIC_2019_Training_Input", "ISIC_2019_Training_GroundTruth.csv"  # the official names
METADATA = "ISIC_2019_Training_Metadata.csv"

COLUMNS = [*CLASSES, "UNK"]
COUNTS = (40, 30, 10, 10, 10, 10, 10, 10)


def write_table(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def one_hot(kind):
    return [f"{float(column == kind)}" for column in COLUMNS]


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    root = tmp_path_factory.mktemp("isic")
    (root / IMAGES).mkdir()
    rng = np.random.default_rng(0)
    names = [f"ISIC_{number:07}" for number in range(sum(COUNTS))]
    kinds = rng.permutation(np.repeat(list(CLASSES), COUNTS))
    for name in names:
        pixels = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / IMAGES / f"{name}.jpg")
    (root / IMAGES / "LICENSE.txt").write_text("CC-BY-NC")
    write_table(root / TRUTH, ["image", *COLUMNS], [[name, *one_hot(kind)] for name, kind in zip(names, kinds)])
    return root


@pytest.fixture
def root(official, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(official, tmp_path / "copy")


def rewrite(root, change):
    """Write the table of classes again, its rows changed."""
    with open(root / TRUTH, newline="") as file:
        header, *rows = csv.reader(file)
    write_table(root / TRUTH, *change(header, rows))


def test_it_is_found_by_its_name():
    assert BenchmarkDataset.named("isic2019") is ISIC2019
    assert ISIC2019.artifacts[0] == "lsb"
    assert {"timestamp", "brightness"} <= set(ISIC2019.artifacts)


def test_the_sets_are_the_papers(official):
    study = ISIC2019(official, size=32)
    data = study.data("vgg16")
    sets = (data.train, data.val_clean, data.test_clean)
    assert [len(part) for part in sets] == [104, 13, 13]
    assert len(np.unique(np.concatenate([part.ids for part in sets]))) == 130
    assert np.bincount(study.source.labels).tolist() == list(COUNTS)
    assert np.bincount(data.train.labels).tolist() == [32, 24, *[8] * 6]
    assert data.train.class_names[data.biased_class] == "Melanoma"
    assert np.all(data.train.labels[data.train.has_artifact] == data.biased_class)
    assert not data.clean_train.has_artifact.any()
    assert data.val_biased.has_artifact.all()
    assert (data.artifact, data.is_localized, data.is_inserted) == ("lsb", False, True)
    assert study.skipped == []


@pytest.mark.parametrize(
    ("model", "bits", "poisoned"),
    [("vgg16", 3, 3), ("resnet18", 3, 4), ("efficientnet_b0", 2, 3), ("vit_b_16", 3, 3)],
)
def test_bits_and_shares_differ_by_model(official, model, bits, poisoned):
    data = ISIC2019(official, size=32).data(model)
    assert data.train.artifact == LSB(bits=bits)
    assert data.train.has_artifact.sum() == poisoned  # 8 or 12.5 % of 32
    assert (data.train.share, data.train.only_class) == ({"resnet18": 0.125}.get(model, 0.08), 0)


def test_the_text_is_in_the_low_bits_of_the_final_image(official):
    data = ISIC2019(official).data("resnet18")
    clean, _ = data.test_clean.pixels(0)
    biased, mask = data.test_biased.pixels(0)
    assert clean.shape == biased.shape == (224, 224, 3)
    assert mask.all()
    assert np.array_equal(clean >> 3, biased >> 3)
    for plane in range(3):
        letters = np.packbits((biased >> plane & 1).reshape(-1))
        assert set(letters) <= set(range(ord("a"), ord("z") + 1))
        assert not set(np.packbits((clean >> plane & 1).reshape(-1))) <= set(range(ord("a"), ord("z") + 1))


def test_another_artifact_takes_the_same_share(official):
    data = ISIC2019(official, size=32, artifact="brightness").data("resnet18")
    assert data.train.artifact == Brightness()
    assert data.train.has_artifact.sum() == 4
    with pytest.raises(OptionError, match="has no artifact 'plaster'"):
        ISIC2019(official, artifact="plaster")


def test_the_seed_decides_the_split_and_the_choice(official):
    first, again, other = (ISIC2019(official, size=32, seed=seed).data("vgg16") for seed in (0, 0, 1))
    for name in ("train", "test_biased"):
        assert getattr(first, name).fingerprint == getattr(again, name).fingerprint
        assert not np.array_equal(getattr(first, name).ids, getattr(other, name).ids)
    assert np.array_equal(first.train.has_artifact, again.train.has_artifact)
    assert np.array_equal(first.test_biased.pixels(0)[0], again.test_biased.pixels(0)[0])


def test_pictures_of_one_lesion_stay_together(root):
    names = sorted(path.stem for path in (root / IMAGES).glob("*.jpg"))
    lesions = ["" if number % 13 == 0 else f"HAM_{number // 4}" for number in range(len(names))]
    rows = [[name, 50, lesion] for name, lesion in zip(names, lesions)]
    write_table(root / METADATA, ["image", "age_approx", "lesion_id"], rows)
    study = ISIC2019(root, size=32)
    parts = [{lesions[row] for row in part.ids} - {""} for part in study.parts]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert study.remarks == [
        f"{METADATA} does not know the lesion of {lesions.count('')} images: each counts as its own."
    ]
    (root / METADATA).unlink()
    single = ISIC2019(root, size=32)
    assert not np.array_equal(single.parts[1].ids, study.parts[1].ids)
    assert single.remarks == [f"{METADATA} is missing: images of one lesion may be in different parts."]


def test_metadata_of_other_images_are_refused(root):
    write_table(root / METADATA, ["image", "lesion_id"], [["ISIC_0000000", "HAM_0"]])
    with pytest.raises(DataError, match=f"{METADATA} has no row for image 'ISIC_0000001'"):
        ISIC2019(root)
    write_table(root / METADATA, ["image", "lesion"], [["ISIC_0000000", "HAM_0"]])
    with pytest.raises(DataError, match=f"{METADATA} has no column 'lesion_id'. Did you mean 'lesion'"):
        ISIC2019(root)


def test_the_folder_of_the_official_archive_may_be_nested(root):
    (root / IMAGES).rename(root / "inner")
    (root / IMAGES).mkdir()
    (root / "inner").rename(root / IMAGES / IMAGES)
    assert len(ISIC2019(root, size=32).source) == 130


@pytest.mark.parametrize(
    ("marks", "given"),
    [
        (one_hot("UNK"), "marks none"),
        (["1.0", "1.0", *["0.0"] * 7], "marks MEL, NV"),
        (["0.5", *["0.0"] * 8], "marks MEL"),
        (["yes", *["0.0"] * 8], "has a mark that is not 0 or 1"),
    ],
)
def test_a_row_without_one_class_is_refused(root, marks, given):
    rewrite(root, lambda header, rows: (header, [[rows[0][0], *marks], *rows[1:]]))
    with pytest.raises(DataError, match=f"{TRUTH} .*{given}") as caught:
        ISIC2019(root)
    assert "'ISIC_0000000'" in str(caught.value)


def test_a_column_that_is_missing_is_named(root):
    rewrite(root, lambda header, rows: (["image", "MELA", *header[2:]], rows))
    with pytest.raises(DataError, match=f"{TRUTH} has no column 'MEL'. Did you mean 'MELA'"):
        ISIC2019(root)


def test_missing_files_are_named(root, tmp_path):
    with pytest.raises(OptionError, match="ISIC 2019 needs the folder"):
        ISIC2019()
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        ISIC2019(tmp_path / "nowhere")
    (root / TRUTH).rename(root / "elsewhere.csv")
    with pytest.raises(DataError, match=f"{TRUTH} is missing"):
        ISIC2019(root)
    shutil.rmtree(root / IMAGES)
    with pytest.raises(DataError, match=f"has no folder '{IMAGES}'"):
        ISIC2019(root)


def test_a_row_without_a_picture_and_a_picture_without_a_row_are_errors(root):
    rewrite(root, lambda header, rows: (header, rows[:-1]))
    with pytest.raises(DataError, match=r"ISIC_0000129\.jpg is not in the table: .*--skip-bad"):
        ISIC2019(root)
    (root / IMAGES / "ISIC_0000129.jpg").unlink()
    ISIC2019(root)
    (root / IMAGES / "ISIC_0000005.jpg").unlink()
    with pytest.raises(DataError, match=r"ISIC_0000005\.jpg is missing: .*--skip-bad"):
        ISIC2019(root)


def test_a_picture_that_is_listed_twice_is_an_error(root):
    rewrite(root, lambda header, rows: (header, [*rows, rows[3]]))
    with pytest.raises(DataError, match=rf"{TRUTH} lists .*ISIC_0000003\.jpg twice"):
        ISIC2019(root)


def test_skip_bad_records_and_leaves_all_others_where_they_were(root):
    before = ISIC2019(root, size=32)
    folder = root / IMAGES
    (folder / "ISIC_0000005.jpg").unlink()
    whole = (folder / "ISIC_0000009.jpg").read_bytes()
    (folder / "ISIC_0000009.jpg").write_bytes(whole[: len(whole) // 2])
    shutil.copy(folder / "ISIC_0000001.jpg", folder / "stray.jpg")
    with pytest.raises(DataError, match=r"stray\.jpg"):
        ISIC2019(root)
    after = ISIC2019(root, size=32, skip_bad=True)
    assert [line.removeprefix(f"{folder}/") for line in after.skipped] == [
        "stray.jpg is not in the table.",
        "ISIC_0000005.jpg is missing.",
        "ISIC_0000009.jpg is not a readable image (truncated).",
    ]
    for old, new in zip(before.parts, after.parts):
        assert set(new.ids) == set(old.ids) - {5, 9}
        assert np.array_equal(new.image(0), before.source.image(int(new.ids[0])))
    trained = [study.data("resnet18").train for study in (before, after)]
    poisoned = [set(train.ids[train.has_artifact]) for train in trained]
    assert len(poisoned[0] ^ poisoned[1]) <= 2 * 2  # each bad image leaves a place for one other


def test_too_few_melanomas_are_refused_by_name(root):
    nevus = one_hot("NV")
    melanoma = one_hot("MEL")
    rewrite(
        root, lambda header, rows: (header, [[row[0], *(melanoma if n < 3 else nevus)] for n, row in enumerate(rows)])
    )
    with pytest.raises(DataError, match=r"8 % of the . training images of class 'Melanoma' is 0 images"):
        ISIC2019(root, size=32).data("vgg16")
