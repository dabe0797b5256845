"""A user's own images and table: finding files, splits, groups, natural flags, every error in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hansfree.data.artifacts import Brightness
from hansfree.errors import DataError, OptionError
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.user_table import ImageTable
from tests.paper.conftest import LABELS, PARTS

DATASET = "table"
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


# An artifact that a column says which images carry


@pytest.fixture
def columns(tmp_path):
    lines = ["image,label,split,ruler,ink"]
    for row in range(32):
        Image.new("RGB", (20, 20), (row, 90, 60)).save(tmp_path / f"{row:02}.png")
        part = ("train", "train", "val", "test")[row // 8]
        lines.append(f"{row:02}.png,{LABELS[2 * (row % 2)]},{part},{int(row % 3 == 0)},{int(row < 4)}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_column_says_who_carries_it(columns):
    study = ImageTable(columns, artifact="ruler", size=32, biased_class="wart")
    data = study.data("demo")
    assert data.train.has_artifact.tolist() == [row % 3 == 0 for row in range(16)]
    assert data.val_biased.ids.tolist() == [18, 21]
    assert data.test_clean.ids.tolist() == [25, 26, 28, 29, 31]
    assert not data.is_inserted
    assert data.pairs is None
    assert (data.biased_class, data.artifact) == (1, "ruler")
    assert data.clean_train is not None
    assert not data.clean_train.has_artifact.any()


def test_another_column_of_the_same_table(columns):
    study = ImageTable(columns, artifact="ruler", size=32, biased_class="wart").with_artifact("ink")
    assert np.flatnonzero(study.data("demo").train.has_artifact).tolist() == [0, 1, 2, 3]


def test_without_a_class_it_is_the_one_that_carries_it_most_often(columns):
    study = ImageTable(columns, artifact="ink", size=32)
    assert study.remarks[0] == "No biased class was given: ink is most frequent in 'naevus'."  # 2 of 16 each: the first
    assert study.marked("demo") is not None
    assert study.with_artifact("timestamp").marked("demo") is None


def test_every_column_has_the_class_that_it_is_most_frequent_in(columns):
    (columns / "labels.csv").write_text(
        "\n".join(
            ["image,label,group,ruler,ink"]
            + [
                f"{row:02}.png,{LABELS[2 * (row % 2)]},{row},{int(row % 4 == 0)},{int(row % 4 == 1)}"
                for row in range(32)
            ]
        )
    )
    ruler = ImageTable(columns, artifact="ruler", size=32)
    ink = ruler.with_artifact("ink")
    assert [study.data("demo").biased_class for study in (ruler, ink, ink.with_artifact("timestamp"))] == [0, 1, 0]
    assert ruler.remarks == ["No biased class was given: ruler is most frequent in 'naevus'."]
    assert ink.remarks == ["No biased class was given: ink is most frequent in 'wart'."]


def test_a_given_class_stays(columns):
    study = ImageTable(columns, artifact="ruler", size=32, biased_class="wart")
    for artifact in ("ink", "timestamp"):
        other = study.with_artifact(artifact)
        assert other.data("demo").biased_class == 1
        assert other.remarks == study.remarks


def test_a_column_that_is_not_there(columns):
    with pytest.raises(
        OptionError, match=r"no artifact 'rular'. Did you mean 'ruler'\?.* Known: timestamp, .*ruler, ink"
    ):
        ImageTable(columns, artifact="rular", size=32)
