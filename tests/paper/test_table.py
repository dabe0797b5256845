"""A user's own images and table: finding files, splits, groups, columns of natural artifacts, errors."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.data import Listing
from hansfree.errors import DataError, OptionError
from hansfree_paper.user_table import ImageTable, read_flags
from tests.paper.conftest import LABELS, PARTS, write_rows

DATASET = "table"
HEAD = ("image", "label", "split", "ruler", "age")
ROWS = [
    (f"images/{row:03}.png", LABELS[row % 3], PARTS[row // 6], str(int(row % 5 == 0)), str(30 + row))
    for row in range(36)
]  # as in the root


def write_table(path, **columns):
    """Write the table with columns changed, each a function of the row's number; None removes one."""
    head = [*(name for name in HEAD if columns.get(name, "") is not None), *(columns.keys() - {*HEAD})]
    table = [
        dict(zip(HEAD, row)) | {name: make(n) for name, make in columns.items() if make} for n, row in enumerate(ROWS)
    ]
    write_rows(path, [head, *([row[name] for name in head] for row in table)])


def test_the_tables_own_split_labels_and_images(root):
    study = ImageTable(root, size=32)
    assert study.remarks == [
        "No biased class was given: the artifact is inserted into 'melanoma', the first in the alphabet.",
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


def test_flags_are_columns_of_0_and_1_or_false_and_true(tmp_path):
    rows = [f"{number},x,{number % 2},{number},{('false', 'TRUE')[number % 2]}" for number in range(20)]
    text = "image,label,ruler,age,tag\n" + "\n".join(rows)
    (tmp_path / "t.csv").write_text(text)
    flags = read_flags(Listing.read(tmp_path, table=tmp_path / "t.csv"))
    assert list(flags) == ["ruler", "tag"]
    assert flags["tag"].tolist() == flags["ruler"].tolist() == [bool(number % 2) for number in range(20)]
    (tmp_path / "t.csv").write_text(text.replace("3,x,1,3", "3,x,yes,3"))
    with pytest.raises(DataError, match="gives '3' the ruler 'yes', where 19 others have 0 or 1"):
        read_flags(Listing.read(tmp_path, table=tmp_path / "t.csv"))


def test_flags_are_the_columns_of_0_and_1_of_the_test_images(root):
    flags = ImageTable(root, size=32).flags()
    assert list(flags) == ["ruler"]  # an age is no flag
    assert flags["ruler"].tolist() == [True, False, False, False, False, True]  # rows 30 and 35
    (root / "images" / "031.png").write_bytes(b"")
    assert ImageTable(root, size=32, skip_bad=True).flags()["ruler"].tolist() == [True, False, False, False, True]


def test_any_single_table_will_do_but_not_two(root):
    (root / "labels.csv").rename(root / "skin.csv")
    assert len(ImageTable(root).source) == len(ROWS)
    write_table(root / "more.csv")
    with pytest.raises(DataError, match=r"has no labels.csv, and 2 others \(more.csv, skin.csv\)"):
        ImageTable(root)
    write_table(root / "labels.csv")
    assert len(ImageTable(root).source) == len(ROWS)
    for folder, fragment in (
        ("images", "no labels.csv, and no other table"),
        ("nowhere", "There is no folder .*nowhere"),
    ):
        with pytest.raises(DataError, match=fragment):
            ImageTable(root / folder)


@pytest.mark.parametrize(
    ("columns", "fragment"),
    [
        ({"label": None}, "has no column 'label'"),
        ({"split": lambda n: "train"}, "has no image in the split 'val'"),
        ({"label": lambda n: "naevus"}, "has a single label, 'naevus'"),
        ({"label": lambda n: "cyst" if n == 35 else LABELS[n % 3]}, "has no training image of class 'cyst'"),
        ({"group": lambda n: "" if n < 20 else "one"}, "has group 'one' in train and in val: it belongs in one"),
    ],
)
def test_a_table_that_makes_no_sense_is_rejected_with_its_path(root, columns, fragment):
    write_table(root / "labels.csv", **columns)
    with pytest.raises(DataError, match=fragment) as error:
        ImageTable(root)
    assert "labels.csv" in str(error.value)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"biased_class": "melanom"}, r"no label 'melanom'. Did you mean 'melanoma'\? Known: melanoma, naevus, wart"),
        ({"share": 0}, "above 0 and below 1"),
        ({"share": 1}, "above 0 and below 1"),
        ({"artifact": "plaster"}, "has no artifact 'plaster'"),
        ({"artifact": "rular"}, r"no artifact 'rular'. Did you mean 'ruler'\?.* Known: timestamp, .*ruler"),
    ],
)
def test_options_are_checked(root, options, fragment):
    with pytest.raises(OptionError, match=fragment):
        ImageTable(root, **options)


# An artifact that a column says which images carry


def test_the_column_says_which_images_carry_it(root):
    write_table(root / "labels.csv", ink=lambda n: int(n < 4))
    study = ImageTable(root, artifact="ruler", size=32, biased_class="wart")
    data = study.data("demo")
    assert data.train.has_artifact.tolist() == [row % 5 == 0 for row in range(24)]
    assert data.val_biased.ids.tolist() == [25]
    assert data.test_clean.ids.tolist() == [31, 32, 33, 34]
    assert not data.is_inserted
    assert data.pairs is None
    assert (data.biased_class, data.artifact) == (2, "ruler")
    assert data.clean_train is not None
    assert not data.clean_train.has_artifact.any()
    assert study.marked("demo") is not None
    assert study.with_artifact("timestamp").marked("demo") is None
    assert np.flatnonzero(study.with_artifact("ink").data("demo").train.has_artifact).tolist() == [0, 1, 2, 3]


def test_every_column_has_the_class_that_it_is_most_frequent_in_unless_one_is_given(root):
    columns = {"ruler": lambda n: int(n % 6 == 2), "ink": lambda n: int(n % 3 == 1)}
    write_table(root / "labels.csv", **columns, split=None, group=lambda n: n)
    ruler = ImageTable(root, artifact="ruler", size=32)
    ink = ruler.with_artifact("ink")
    assert [study.data("demo").biased_class for study in (ruler, ink, ink.with_artifact("timestamp"))] == [2, 0, 0]
    assert ruler.remarks == ["No biased class was given: ruler is most frequent in 'wart'."]
    assert ink.remarks == ["No biased class was given: ink is most frequent in 'melanoma'."]
    given = ImageTable(root, artifact="ruler", size=32, biased_class="naevus")
    for artifact in ("ink", "timestamp"):
        other = given.with_artifact(artifact)
        assert other.data("demo").biased_class == 1
        assert other.remarks == given.remarks
