"""A user's own images and table: finding files, splits, groups, natural flags, every error in one sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from hansfree.data.artifacts import Brightness
from hansfree.data.biased import SETS
from hansfree.errors import DataError, OptionError
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.user_table import ImageTable

LABELS = ("naevus", "melanoma", "wart")
PARTS = ("train", "train", "train", "train", "val", "test")
ROWS = 36


def rows_of_table():
    return [
        {
            "image": f"images/{row:03}.png",
            "label": LABELS[row % 3],
            "split": PARTS[row // 6],
            "ruler": str(int(row % 5 == 0)),
            "age": str(30 + row),
        }
        for row in range(ROWS)
    ]


def write_table(path, rows):
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "images").mkdir()
    for row in range(ROWS):
        Image.new("RGB", (20, 20), (row, 90, 60)).save(tmp_path / "images" / f"{row:03}.png")
    write_table(tmp_path / "labels.csv", rows_of_table())
    return tmp_path


def without(column):
    return [{name: value for name, value in row.items() if name != column} for row in rows_of_table()]


def test_the_tables_own_split_labels_and_pictures(root):
    study = BenchmarkDataset.named("table")(root, size=32)
    assert study.remarks == [
        "No biased class was given: the artifact is put into 'melanoma', the first in the alphabet.",
        "labels.csv has no column 'group': images of one subject may be in different parts of the split.",
    ]
    data = study.data("resnet18")
    assert data.train.class_names == ("melanoma", "naevus", "wart")
    assert data.biased_class == 0
    assert data.train.ids.tolist() == list(range(24))
    assert data.val_biased.ids.tolist() == list(range(24, 30))
    assert data.test_clean.ids.tolist() == list(range(30, 36))
    names = [data.train.class_names[label] for label in data.train.labels]
    assert names == [LABELS[row % 3] for row in range(24)]
    assert data.test_clean.pixels(2)[0][0, 0].tolist() == [32, 90, 60]  # row 32


def test_a_share_of_the_named_class_carries_the_artifact(root):
    data = ImageTable(root, size=32, artifact="brightness", biased_class="wart", share=0.25).data("demo")
    inside = data.train.labels == 2
    assert (data.biased_class, data.artifact, data.is_localized) == (2, "brightness", False)
    assert data.train.has_artifact[inside].sum() == 2  # a quarter of 8
    assert not data.train.has_artifact[~inside].any()
    biased = Brightness().insert(data.test_clean.source, 0, seed=0)[0]
    assert np.array_equal(data.test_biased.pixels(0)[0], biased)


def test_flags_are_the_columns_of_0_and_1_of_the_test_images(root):
    flags = ImageTable(root, size=32).flags()
    assert list(flags) == ["ruler"]  # an age is no flag
    assert flags["ruler"].tolist() == [True, False, False, False, False, True]  # rows 30 and 35
    bad = root / "images" / "031.png"
    bad.write_bytes(b"")
    assert ImageTable(root, size=32, skip_bad=True).flags()["ruler"].tolist() == [True, False, False, False, True]


def test_flags_may_be_false_and_true_as_in_a_run_file_s_table(root):
    numbers = ImageTable(root, size=32, artifact="ruler").flags()
    rows = [{**row, "ruler": str(row["ruler"] == "1")} for row in rows_of_table()]
    write_table(root / "labels.csv", rows)
    words = ImageTable(root, size=32, artifact="ruler").flags()
    assert words["ruler"].tolist() == numbers["ruler"].tolist()


def test_a_gap_among_flags_is_an_error(root):
    rows = rows_of_table()
    rows[7]["ruler"] = ""
    write_table(root / "labels.csv", rows)
    with pytest.raises(DataError, match=r"labels.csv has nothing as ruler of 'images/007.png'. Allowed: 0 and 1"):
        ImageTable(root)


def test_a_stray_value_among_flags_is_an_error_and_a_column_of_others_is_not(root):
    rows = rows_of_table()
    rows[7]["ruler"] = "yes"
    write_table(root / "labels.csv", rows)
    with pytest.raises(
        DataError, match=r"labels.csv gives 'images/007.png' the ruler 'yes', where 35 others have 0 or"
    ):
        ImageTable(root)
    counts = [{**row, "ruler": str(number % 3)} for number, row in enumerate(rows)]
    write_table(root / "labels.csv", counts)
    assert ImageTable(root).flags() == {}


def test_without_a_split_column_the_rows_are_drawn_by_seed_and_label(root):
    write_table(root / "labels.csv", without("split"))
    one, same, other = (ImageTable(root, size=32, seed=seed) for seed in (0, 0, 1))
    assert [len(part) for part in one.parts] == pytest.approx([28.8, 3.6, 3.6], abs=1)
    assert sorted(np.concatenate([part.ids for part in one.parts])) == list(range(ROWS))
    for name in SETS:
        assert getattr(one.data("demo"), name).fingerprint == getattr(same.data("demo"), name).fingerprint
    assert not np.array_equal(one.parts[0].ids, other.parts[0].ids)


def test_a_group_is_never_in_two_parts(root):
    rows = [{**row, "group": str(number // 3)} for number, row in enumerate(without("split"))]
    write_table(root / "labels.csv", rows)
    study = ImageTable(root, biased_class="wart")
    assert study.remarks == []
    seen = [set(part.ids // 3) for part in study.parts]
    assert sum(map(len, seen)) == len(set.union(*seen))
    rows = [{**row, "group": "" if number < 20 else "one"} for number, row in enumerate(rows_of_table())]
    write_table(root / "labels.csv", rows)
    with pytest.raises(DataError, match=r"labels.csv has group 'one' in train and in val: it belongs in one"):
        ImageTable(root)


@pytest.mark.parametrize("name", ["images/{}.png", "{}.png", "{}", "images/{}"])
def test_images_are_found_beside_the_table_or_in_images_with_or_without_ending(root, name):
    rows = [{**row, "image": name.format(f"{number:03}")} for number, row in enumerate(rows_of_table())]
    write_table(root / "labels.csv", rows)
    assert ImageTable(root).source.paths[5] == str(root / "images" / "005.png")


def test_any_single_table_will_do_but_not_two(root):
    (root / "labels.csv").rename(root / "skin.csv")
    assert len(ImageTable(root).source) == ROWS
    write_table(root / "more.csv", rows_of_table())
    with pytest.raises(DataError, match=r"has no labels.csv, and 2 others \(more.csv, skin.csv\)"):
        ImageTable(root)
    write_table(root / "labels.csv", rows_of_table())
    assert len(ImageTable(root).source) == ROWS
    with pytest.raises(DataError, match=r"images has no labels.csv, and no other table"):
        ImageTable(root / "images")
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        ImageTable(root / "nowhere")


def changed(row, **values):
    rows = rows_of_table()
    rows[row].update(values)
    return rows


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (without("label"), r"has no column 'label'"),
        (changed(3, label=""), r"has a row without label: images/003.png"),
        (changed(3, image=""), r"has a row without image"),
        (changed(3, image="002"), r"lists .*images/002.png twice"),
        (changed(3, split="tests"), r"puts 'images/003.png' into the split 'tests'. Did you mean 'test'\?"),
        ([{**row, "split": "train"} for row in rows_of_table()], r"has no image in the split 'val'"),
        ([{**row, "label": "naevus"} for row in rows_of_table()], r"has a single label, 'naevus'"),
        (changed(35, label="cyst"), r"has no training image of class 'cyst'"),
    ],
)
def test_a_table_that_makes_no_sense_is_one_sentence_with_its_path(root, rows, sentence):
    write_table(root / "labels.csv", rows)
    with pytest.raises(DataError, match=sentence) as error:
        ImageTable(root)
    assert str(root / "labels.csv") in str(error.value)


def test_options_are_checked(root):
    with pytest.raises(
        OptionError, match=r"no label 'melanom'. Did you mean 'melanoma'\? Known: melanoma, naevus, wart"
    ):
        ImageTable(root, biased_class="melanom")
    for share in (0, 1, -0.1):
        with pytest.raises(OptionError, match="above 0 and below 1"):
            ImageTable(root, share=share)
    with pytest.raises(OptionError, match="has no artifact 'plaster'"):
        ImageTable(root, artifact="plaster")


def test_bad_images_are_errors_or_recorded_and_the_others_stay_where_they_are(root):
    write_table(root / "labels.csv", without("split"))
    before = ImageTable(root, size=32)
    missing, damaged = root / "images" / "004.png", root / "images" / "009.png"
    missing.unlink()
    with pytest.raises(DataError, match=r"images/004.png is missing: .*--skip-bad"):
        ImageTable(root)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    study = ImageTable(root, size=32, skip_bad=True)
    assert [re.search(r"(\d+)\.png", sentence)[1] for sentence in study.skipped] == ["004", "009"]
    for old, new in zip(before.parts, study.parts):
        assert [row for row in old.ids if row not in (4, 9)] == new.ids.tolist()


def test_a_part_whose_images_are_all_bad_is_an_error(root):
    for row in range(24, 30):
        (root / "images" / f"{row:03}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"labels.csv has no validation image that can be read"):
        ImageTable(root, skip_bad=True)
