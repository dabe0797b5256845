"""A user's own images: tables and class folders, bits and insertions, splits and groups, every error in a sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hansfree.artifacts import Brightness, Patch, Plaster, Timestamp
from hansfree.datasets.base import Normalize
from hansfree.errors import DataError, HansfreeError, OptionError
from hansfree.studies.own import OwnImages
from hansfree.studies.study import SETS, Study

ROWS = 60
PARTS = ("train", "train", "train", "train", "val", "test")
Row = dict[str, str]


def table_rows() -> list[Row]:
    """Two classes by turns; every fifth image, all in the first class, carries the artifact."""
    return [
        {
            "image": f"{row:03}.png",
            "label": ("benign", "malignant")[row % 2],
            "artifact": str(int(row % 10 == 0 or row % 10 == 4)),
            "split": PARTS[row // 10],
        }
        for row in range(ROWS)
    ]


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    for row in range(ROWS):
        Image.new("RGB", (9, 9), (row, 90, 60)).save(root / f"{row:03}.png")
    return root


@pytest.fixture
def own(pictures: Path, tmp_path: Path) -> Callable[..., OwnImages]:
    def make(rows: list[Row] | None = None, **options: Any) -> OwnImages:
        table = write(tmp_path / "own.csv", table_rows() if rows is None else rows)
        return OwnImages(**{"root": pictures, "table": table, "size": 8, **options})

    return make


def changed(change: Callable[[int, Row], Row]) -> list[Row]:
    return [change(number, row) for number, row in enumerate(table_rows())]


def without(*columns: str) -> list[Row]:
    return changed(lambda _, row: {name: value for name, value in row.items() if name not in columns})


# Three kinds of data


def test_bits_alone_are_a_natural_bias(own: Callable[..., OwnImages]) -> None:
    study = own()
    data = study.data()
    assert (data.is_inserted, data.has_masks, data.artifact, data.clean_train) == (False, False, "artifact", None)
    assert data.train.class_names == ("benign", "malignant")
    assert data.biased_class == 0
    assert data.train.ids.tolist() == list(range(40))
    assert np.flatnonzero(data.train.has_artifact).tolist() == [0, 4, 10, 14, 20, 24, 30, 34]
    assert data.val_biased.ids.tolist() == [40, 44]  # all of one class: poor, but no error
    assert data.val_clean.ids.tolist() == [row for row in range(40, 50) if row not in (40, 44)]
    assert data.test_biased.ids.tolist() == [50, 54]
    assert data.test_biased.pixels(1)[0][0, 0].tolist() == [54, 90, 60]
    assert study.remarks == [
        "own.csv has no column 'group': images of one subject may be in different parts.",
        "No classes were given: the outputs are taken to be benign, malignant, in that order.",
        "No biased class was given: 'benign' is taken, 8 of whose 20 training images carry the artifact, the largest "
        "share.",
    ]


def test_a_given_class_is_doubted_where_the_marks_are_of_another(own: Callable[..., OwnImages]) -> None:
    rows = table_rows()
    for number, row in enumerate(rows):
        row["artifact"] = str(int(number % 10 in (0, 3, 5, 7) or number == 2))
    doubt = (
        "biased_class is 'benign', but 12 of the 17 training images with the artifact (71 %) are of 'malignant', and 5 "
        "of 'benign': is it the class that the artifact leaks into?"
    )
    assert doubt in own(rows, biased_class="benign").remarks
    assert not any("biased_class is" in remark for remark in own(rows, biased_class="malignant").remarks)


def test_an_artifact_to_insert_alone_is_a_controlled_bias(own: Callable[..., OwnImages]) -> None:
    data = own(without("artifact"), insert=Brightness(), biased_class="malignant", share=0.25).data()
    assert (data.is_inserted, data.has_masks, data.artifact, data.is_localized) == (True, True, "brightness", False)
    inside = data.train.labels == 1
    assert (data.train.has_artifact[inside].sum(), data.train.has_artifact[~inside].sum()) == (5, 0)
    assert data.clean_train is not None
    assert data.test_biased.has_artifact.all()
    assert np.array_equal(data.test_biased.ids, data.test_clean.ids)
    assert "No biased class was given: the artifact is put into 'benign', the first." in (
        own(without("artifact"), insert=Brightness()).remarks
    )


def test_both_learn_from_nature_and_test_by_insertion(own: Callable[..., OwnImages], tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (255, 0, 0, 255)).save(tmp_path / "tag.png")
    patch = Patch(file=tmp_path / "tag.png", size=0.5, place="top-left")
    data = own(insert=patch).data()
    assert (data.is_inserted, data.has_masks, data.artifact, data.is_localized) == (True, False, "artifact", True)
    assert data.train.has_artifact.sum() == 8
    assert data.val_clean.ids.tolist() == [row for row in range(40, 50) if row not in (40, 44)]
    assert np.array_equal(data.val_clean.ids, data.val_biased.ids)
    image, _ = data.val_biased.pixels(0)
    assert image[:4, :4].reshape(-1, 3).tolist() == [[255, 0, 0]] * 16
    assert image[5, 5].tolist() == data.val_clean.pixels(0)[0][5, 5].tolist() == [41, 90, 60]


def test_it_is_not_offered_among_the_named_datasets() -> None:
    assert OwnImages not in Study.members().values()


def test_same_options_give_the_same_sets_and_others_do_not(own: Callable[..., OwnImages]) -> None:
    rows = without("split")
    one, same, other = (own(rows, seed=seed).data() for seed in (0, 0, 1))
    for name in SETS:
        assert getattr(one, name).fingerprint == getattr(same, name).fingerprint
    assert not np.array_equal(one.train.ids, other.train.ids)


def test_one_channel_and_its_own_transform(own: Callable[..., OwnImages]) -> None:
    transform = Normalize((0.5,), (0.25,))
    for options in ({}, {"insert": Timestamp()}):
        data = own(channels=1, transform=transform, **options).data()
        for name in SETS:
            assert getattr(data, name)[0].image.shape == (1, 8, 8)
            assert getattr(data, name).transform == transform
    controlled = own(without("artifact"), insert=Timestamp(), channels=1, transform=transform).data()
    assert controlled.clean_train is not None
    assert controlled.clean_train.transform == transform
    with pytest.raises(OptionError, match="channels is 1, but the transform has 3 means and 3 stds"):
        own(channels=1)


# What tells the artifact


@pytest.mark.parametrize("words", [("False", "True"), ("false", "TRUE")])
def test_the_words_of_pandas_are_bits(own: Callable[..., OwnImages], words: tuple[str, str]) -> None:
    study = own(changed(lambda _, row: {**row, "artifact": words[int(row["artifact"])]}))
    assert study.data().train.has_artifact.sum() == 8


def test_the_column_may_have_another_name(own: Callable[..., OwnImages]) -> None:
    rows = [{name.replace("artifact", "ruler"): value for name, value in row.items()} for row in table_rows()]
    assert own(rows, artifact_column="ruler").data().artifact == "ruler"
    for options in ({}, {"insert": Brightness()}):
        with pytest.raises(DataError, match=r"own.csv has no column 'rular' .*Did you mean 'ruler'\?"):
            own(rows, artifact_column="rular", **options)
    with pytest.raises(DataError, match="has no column 'artifact' that tells") as told:
        own(rows)
    assert "`hansfree label FILE.yaml`" in str(told.value)
    assert "`insert:`" in str(told.value)


@pytest.mark.parametrize(
    ("bit", "sentence"),
    [
        (lambda n: "", "has nothing as artifact of '000.png'. Allowed: 0 and 1"),
        (lambda n: "maybe", "has 'maybe' as artifact of '000.png'"),
        (lambda n: "0", "None of the 60 images of .* carries the artifact"),
        (lambda n: "1", "Each of the 60 images of .* carries the artifact"),
        (lambda n: str(int(n in (0, 41, 51))), "1 of the 40 training images of .* carry the artifact: .* at least 5"),
        (
            lambda n: str(int(n < 8 and n != 4)),
            "4 of the 20 training images of the biased class .* at least 5 with and",
        ),
        (
            lambda n: str(int(n < 32 and n % 2 == 0)),
            "16 of the 20 training images of the biased class .* and 5 without",
        ),
        (lambda n: str(int(n < 40 and n % 2 == 0)), "20 of the 20 training images of the biased class 'benign'"),
        (lambda n: str(int(n < 5 or 40 <= n < 50)), "Each validation image of .* carries the artifact"),
    ],
)
def test_bits_that_nothing_can_be_learned_from_are_errors(
    own: Callable[..., OwnImages], bit: Callable[[int], str], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        own(changed(lambda number, row: {**row, "artifact": bit(number)}))


def test_too_few_images_to_insert_into_are_told(own: Callable[..., OwnImages]) -> None:
    rows = without("artifact")
    assert own(rows, insert=Brightness(), share=0.75).data().train.has_artifact.sum() == 15
    for share, n in ((0.2, 4), (0.8, 16)):
        with pytest.raises(DataError, match=f"{n} of the 20 training images of the biased class 'benign'.*at least 5"):
            own(rows, insert=Brightness(), share=share).data()


def test_held_out_parts_without_the_artifact_are_told_and_not_refused(own: Callable[..., OwnImages]) -> None:
    rows = changed(lambda number, row: {**row, "artifact": str(int(number in (0, 2, 4, 6, 8, 50)))})
    study = own(rows)
    data = study.data()
    assert (len(data.val_biased), len(data.val_clean), len(data.test_biased)) == (0, 10, 1)
    sentence = "No validation image carries the artifact: what it does to them cannot be known."
    assert study.remarks.count(sentence) == 1
    assert sentence not in own(rows, insert=Timestamp()).remarks


def test_the_class_with_the_largest_share_is_taken_and_a_single_image_is_no_share(
    own: Callable[..., OwnImages],
) -> None:
    def change(number: int, row: Row) -> Row:
        label = "rare" if number == 1 else row["label"]
        return {
            **row,
            "label": label,
            "artifact": str(int(number in (0, 1, 2, 4, 6, 8, 10) or (number % 2 and number < 15))),
        }

    assert own(changed(change)).data().biased_class == 1  # 6 of benign, 7 of malignant, 1 of 1 rare
    assert own(changed(change), biased_class="benign").data().biased_class == 0


# Classes


def test_classes_are_in_the_order_of_the_models_outputs(own: Callable[..., OwnImages]) -> None:
    study = own(classes=("malignant", "unseen", "benign"))
    data = study.data()
    assert data.train.class_names == ("malignant", "unseen", "benign")
    assert data.train.labels[:4].tolist() == [2, 0, 2, 0]
    assert data.biased_class == 2
    assert not any("No classes" in remark for remark in study.remarks)
    assert own(classes=("malignant", "unseen", "benign"), biased_class="2").data().biased_class == 2


def test_whole_numbers_are_numbers_of_outputs(own: Callable[..., OwnImages]) -> None:
    rows = changed(lambda number, row: {**row, "label": "10" if number % 2 else "2"})
    data = own(rows).data()
    assert data.train.class_names == tuple(map(str, range(11)))
    assert data.train.labels[:2].tolist() == [2, 10]  # not in the order of the alphabet
    named = own(rows, classes=[f"class {number}" for number in range(11)], biased_class="class 2").data()
    assert named.train.labels[:2].tolist() == [2, 10]
    assert own(rows, classes=("10", "2")).data().train.labels[:2].tolist() == [1, 0]  # unless they are names
    with pytest.raises(DataError, match="has the label 10, but the 3 classes are 0 to 2"):
        own(rows, classes=("a", "b", "c"))
    long = changed(lambda number, row: {**row, "label": "9999999999" if number % 2 else "1000000000000"})
    assert own(long).data().train.class_names == ("1000000000000", "9999999999")


def test_a_label_that_the_model_does_not_know_is_an_error(own: Callable[..., OwnImages]) -> None:
    with pytest.raises(
        DataError, match=r"'malignant', .* \(data\.classes\)\. The nearest of those is 'malign'\. Given: benign, malign"
    ):
        own(classes=("benign", "malign"))
    with pytest.raises(OptionError, match=r"biased_class is 'benin', .* Did you mean 'benign'\?"):
        own(biased_class="benin")
    with pytest.raises(OptionError, match="classes has 'benign' twice"):
        own(classes=("benign", "benign", "malignant"))
    with pytest.raises(DataError, match=r"All images of .* are of class 'benign'"):
        own(changed(lambda _, row: {**row, "label": "benign"}))


def test_a_class_without_training_images_is_told(own: Callable[..., OwnImages]) -> None:
    study = own(changed(lambda number, row: {**row, "label": "cyst"} if number == 59 else row))
    assert "There is no training image of cyst: a correction may harm what it never sees." in study.remarks
    assert study.data().test_clean.labels[-1] == 1  # benign, cyst, malignant


@pytest.mark.parametrize("separator", [";", "|", " ; "])
def test_one_label_of_several_is_of_interest(own: Callable[..., OwnImages], separator: str) -> None:
    cells = ("", "tube", separator.join(("edema", "tube")), separator.join(("edema", "mass", "tube")))
    rows = changed(lambda number, row: {**row, "label": cells[number % 4], "artifact": str(int(number % 3 == 0))})
    data = own(rows, label="edema").data()
    assert data.train.class_names == ("not edema", "edema")
    assert data.train.labels[:4].tolist() == [0, 0, 1, 1]
    assert own(rows, label="edema", classes=("mass", "edema", "tube")).data().train.labels[:4].tolist() == [0, 0, 1, 1]
    with pytest.raises(OptionError, match=r"label is 'oedema', .* Did you mean 'edema'\?"):
        own(rows, label="oedema")
    with pytest.raises(DataError, match=r"The nearest of those is 'masses'\."):
        own(rows, label="edema", classes=("masses", "edema", "tube"))
    with pytest.raises(DataError, match="It names several: say which one with 'label'"):
        own(changed(lambda number, row: {**row, "label": cells[1 + number % 3]}), classes=("edema", "mass", "tube"))


# Splits


def test_without_a_split_every_part_has_its_share_of_classes_and_artifacts(own: Callable[..., OwnImages]) -> None:
    rows = changed(lambda number, row: {**row, "artifact": str(int(number % 4 == 0 or number % 6 == 1))})
    study = own([{name: value for name, value in row.items() if name != "split"} for row in rows])
    assert [len(part) for part in study.parts] == pytest.approx([48, 6, 6], abs=2)
    data = study.data()
    for clean, biased in ((data.val_clean, data.val_biased), (data.test_clean, data.test_biased)):
        assert set(clean.labels) == {0, 1}
        assert set(biased.labels) == {0, 1}


def test_the_shares_of_the_parts_may_be_others(own: Callable[..., OwnImages]) -> None:
    study = own(without("split"), shares=(0.5, 0.3, 0.2))
    assert study.is_drawn
    assert [len(part) for part in study.parts] == pytest.approx([30, 18, 12], abs=2)
    with pytest.raises(OptionError, match="three numbers"):
        own(without("split"), shares=(0.5, 0.5))
    with pytest.raises(OptionError, match="above 0 and sum to 1"):
        own(without("split"), shares=(0.5, 0.3, 0.3))


def test_a_group_is_never_in_two_parts(own: Callable[..., OwnImages]) -> None:
    rows = [{**row, "group": str(number // 3)} for number, row in enumerate(without("split"))]
    study = own(rows)
    seen = [set(part.ids // 3) for part in study.parts]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 20
    assert not any("group" in remark for remark in study.remarks)
    with pytest.raises(DataError, match=r"own.csv has group '13' in train and in val: it belongs in one"):
        own(changed(lambda number, row: {**row, "group": str(number // 3)}))


# Class folders


LISTED = range(0, 16, 2)  # images of the first class with the artifact


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("benign", "malignant"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for row in range(40):
        kind = ("benign", "malignant")[row % 2]
        Image.new("RGB", (9, 9), (row, 90, 60)).save(tmp_path / "data" / kind / f"{row:03}.png")
    (tmp_path / "data" / "benign" / "Thumbs.db").write_bytes(b"junk")
    (tmp_path / "data" / "benign" / "._000.png").write_bytes(b"junk")
    (tmp_path / "data" / ".cache").mkdir()
    rest = "".join(f"{row:03}.png\n" for row in LISTED[3:])
    (tmp_path / "list.txt").write_text(f"benign/000.png\n\n002.png\n  benign/004.png  \n{rest}")
    return tmp_path


def from_folders(base: Path, **options: Any) -> OwnImages:
    return OwnImages(**{"root": base / "data", "artifacts": base / "list.txt", "size": 8, **options})


def test_class_folders_with_a_list_of_artifact_images(folders: Path) -> None:
    study = from_folders(folders)
    assert study.source.class_names == ("benign", "malignant")
    assert [len(part) for part in study.parts] == [32, 4, 4]
    sets = [getattr(study.data(), name) for name in SETS]
    carry = {int(one.pixels(i)[0][0, 0, 0]) for one in sets for i in np.flatnonzero(one.has_artifact)}
    assert carry == set(LISTED)
    assert {int(image[0, 0, 0]) % 2 for image in map(study.source.image, np.flatnonzero(study.source.labels))} == {1}
    assert study.data().artifact == "artifact"


@pytest.mark.parametrize(
    "content",
    [
        ["image", "benign/000.png", *(f"{row:03}.png" for row in LISTED[1:])],
        ["image,artifact", "benign/000.png,1", "benign/038.png,0", *(f"{row:03}.png,1" for row in LISTED[1:])],
    ],
)
def test_the_list_may_be_a_table(folders: Path, content: list[str]) -> None:
    (folders / "list.csv").write_text("\n".join(content))
    study = from_folders(folders, artifacts=folders / "list.csv")
    assert sum(int(getattr(study.data(), name).has_artifact.sum()) for name in SETS) == len(LISTED)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("benin/000.png", r"lists 'benin/000.png', .* Did you mean 'benign/000.png'\?"),
        ("0000.png", r"lists '0000.png', which is not an image"),
        ("Thumbs.db", r"lists 'Thumbs.db', which is not an image"),
        ("both.png", r"lists 'both.png', which is benign/both.png and malignant/both.png: give the path"),
    ],
)
def test_a_list_that_does_not_match_is_an_error(folders: Path, line: str, sentence: str) -> None:
    for kind in ("benign", "malignant"):
        Image.new("L", (4, 4)).save(folders / "data" / kind / "both.png")
    (folders / "list.txt").write_text(f"000.png\n{line}\n")
    with pytest.raises(DataError, match=sentence):
        from_folders(folders)
    with pytest.raises(DataError, match=r"gone\.txt is missing"):
        from_folders(folders, artifacts=folders / "gone.txt")


def test_folders_of_parts_are_the_split(folders: Path) -> None:
    for part, start in (("train", 0), ("val", 20), ("test", 30)):
        for row in range(start, start + {"train": 20, "val": 10, "test": 10}[part]):
            kind = ("benign", "malignant")[row % 2]
            (folders / "data" / part / kind).mkdir(parents=True, exist_ok=True)
            (folders / "data" / kind / f"{row:03}.png").rename(folders / "data" / part / kind / f"{row:03}.png")
    (folders / "list.txt").write_text("train/benign/000.png\n002.png\n004.png\n006.png\n008.png\n022.png\n")
    data = from_folders(folders).data()
    assert sorted(data.train.pixels(i)[0][0, 0, 0] for i in range(20)) == list(range(20))
    assert [int(data.val_biased.pixels(0)[0][0, 0, 0]), len(data.val_biased), len(data.test_biased)] == [22, 1, 0]
    (folders / "data" / "val").rename(folders / "data" / "valid")
    with pytest.raises(DataError, match="has a folder 'train', but none called 'val'"):
        from_folders(folders)


def test_folders_may_be_empty_nested_or_numbered(folders: Path) -> None:
    (folders / "data" / "cyst").mkdir()
    inner = folders / "data" / "malignant" / "patient 1"
    inner.mkdir()
    (folders / "data" / "malignant" / "001.png").rename(inner / "001.png")
    study = from_folders(folders)
    assert (study.source.class_names, len(study.source)) == (("benign", "cyst", "malignant"), 40)
    with pytest.raises(DataError, match="label 'cyst'"):
        from_folders(folders, classes=("benign", "malignant"))
    for name, number in (("benign", "10"), ("cyst", "3"), ("malignant", "2")):
        (folders / "data" / name).rename(folders / "data" / number)
    (folders / "list.txt").write_text("".join(f"{row:03}.png\n" for row in LISTED))
    numbered = from_folders(folders)
    assert len(numbered.source.class_names) == 11
    assert np.bincount(numbered.source.labels)[[2, 3, 10]].tolist() == [20, 0, 20]


def test_folders_without_images_are_errors(folders: Path) -> None:
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        from_folders(folders, root=folders / "nowhere")
    with pytest.raises(DataError, match="benign has no class folders: its images belong in"):
        from_folders(folders, root=folders / "data" / "benign")
    (folders / "other" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="has no image in its folders a"):
        from_folders(folders, root=folders / "other")
    with pytest.raises(DataError, match=r"Nothing tells which images of .* carry the artifact: give a list"):
        from_folders(folders, artifacts=None)
    assert from_folders(folders, artifacts=None, insert=Brightness()).data().is_inserted


# Options and files


def test_options_that_do_not_go_together_are_refused(own: Callable[..., OwnImages], folders: Path) -> None:
    for options, sentence in (
        ({"share": 0}, "above 0 and below 1"),
        ({"size": 0}, "1 pixel or more, not 0"),
        ({"resize": "crops"}, "Did you mean 'crop'"),
        ({"insert": Plaster()}, "'plaster' cannot be put on a finished picture"),
        ({"artifacts": folders / "list.txt"}, "give no list of artifacts beside it"),
    ):
        with pytest.raises(OptionError, match=sentence):
            own(**options)
    with pytest.raises(OptionError, match="which only a table can have"):
        from_folders(folders, label="x")
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        own(root=folders / "nowhere")
    with pytest.raises(DataError, match=r"gone\.csv is missing"):
        own(table=folders / "gone.csv")


def test_bad_images_are_errors_or_recorded(folders: Path) -> None:
    (folders / "data" / "benign" / "004.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"004\.png is empty: .* leave out such images with data\.skip_bad: true\.$"):
        from_folders(folders)
    study = from_folders(folders, skip_bad=True)
    assert len(study.skipped) == 1
    assert sum(int(getattr(study.data(), name).has_artifact.sum()) for name in SETS) == len(LISTED) - 1


WORDS = ["000.png", "001.png", "a", "b", "0", "1", "7", "99999999999", "train", "val", "test", "", "a;b"]
CELL = st.sampled_from(WORDS) | st.text(max_size=4)
COLUMNS = st.sampled_from(["image", "label", "artifact", "split", "group", ""])
TABLES = st.lists(COLUMNS, min_size=1, max_size=5, unique=True).flatmap(
    lambda header: st.lists(st.lists(CELL, min_size=len(header), max_size=len(header)), max_size=8).map(
        lambda body: [header, *body]
    )
)


@st.composite
def damaged_tables(draw: st.DrawFn) -> list[list[str]]:
    """A good table with some cells changed and a column left out."""
    table = [list(table_rows()[0]), *([*row.values()] for row in table_rows())]
    for row, column, cell in draw(st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, 3), CELL), max_size=4)):
        table[row][column] = cell
    left_out = draw(st.none() | st.integers(0, 3))
    return [[cell for column, cell in enumerate(row) if column != left_out] for row in table]


@given(lines=TABLES | damaged_tables(), label=st.none() | st.just("benign"))
@settings(max_examples=120, deadline=None)
def test_any_table_is_a_study_or_an_error_of_ours(
    pictures: Path, tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], label: str | None
) -> None:
    table = tmp_path_factory.getbasetemp() / "fuzzed own.csv"
    table.write_text("\n".join(map(",".join, lines)), encoding="utf-8", errors="replace")
    for insert in (None, Brightness()):
        with contextlib.suppress(HansfreeError):
            data = OwnImages(root=pictures, table=table, size=4, label=label, insert=insert, skip_bad=True).data()
            assert data.train[0].image.shape == (3, 4, 4)


@given(content=st.binary(max_size=40) | st.text(alphabet="benig/0.pn\r\n\0é", max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_list_is_a_study_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    base = tmp_path_factory.getbasetemp() / "fuzzed folders"
    if not base.exists():
        for kind in ("benign", "malignant"):
            (base / "data" / kind).mkdir(parents=True)
            for row in range(10):
                Image.new("L", (4, 4)).save(base / "data" / kind / f"{row}.png")
    (base / "list.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    with contextlib.suppress(HansfreeError):
        from_folders(base).data()
