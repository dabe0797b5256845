"""A user's own images: tables and class folders, artifact labels and insertion, splits and groups, errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hansfree.data import SETS, Brightness, Normalize, Patch, Plaster, Timestamp, UserImages
from hansfree.data.images import find_copies
from hansfree.errors import DataError, OptionError

ROWS = 60
PARTS = ("train", "train", "train", "train", "val", "test")
Row = dict[str, str]
Own = Callable[..., UserImages]


def table_rows(*, without: tuple[str, ...] = (), **change: Callable[[int], str]) -> list[Row]:
    """Two classes in turn; every fifth image, all in the first class, has the artifact."""
    rows = []
    for number in range(ROWS):
        row = {
            "image": f"{number:03}.png",
            "label": ("benign", "malignant")[number % 2],
            "artifact": str(int(number % 10 in (0, 4))),
            "split": PARTS[number // 10],
        }
        row |= {name: make(number) for name, make in change.items()}
        rows.append({name: value for name, value in row.items() if name not in without})
    return rows


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for row in range(ROWS):
        Image.new("RGB", (9, 9), (row, 90, 60)).save(root / f"{row:03}.png")
    return root


@pytest.fixture
def own(images: Path, tmp_path: Path) -> Own:
    def make(rows: list[Row] | None = None, **options: Any) -> UserImages:
        table = write(tmp_path / "own.csv", table_rows() if rows is None else rows)
        return UserImages(**{"root": images, "table": table, "size": 8, **options})

    return make


CLEAN = table_rows(without=("artifact",))
UNSPLIT = table_rows(without=("split",))
VAL_CLEAN = [row for row in range(40, 50) if row not in (40, 44)]


def test_artifact_labels_alone_are_a_natural_bias(own: Own) -> None:
    found = own()
    data = found.data()
    assert (data.is_inserted, data.has_masks, data.artifact, data.clean_train) == (False, False, "artifact", None)
    assert not data.has_test_masks
    assert (data.train.class_names, data.biased_class) == (("benign", "malignant"), 0)
    assert data.train.ids.tolist() == list(range(40))
    assert np.flatnonzero(data.train.has_artifact).tolist() == [0, 4, 10, 14, 20, 24, 30, 34]
    assert (data.val_biased.ids.tolist(), data.val_clean.ids.tolist()) == ([40, 44], VAL_CLEAN)
    assert data.test_biased.ids.tolist() == [50, 54]
    assert data.test_biased.pixels(1)[0][0, 0].tolist() == [54, 90, 60]
    assert [note.split(":")[0] for note in found.remarks] == [
        "own.csv has no column 'group'",
        "No classes were given",
        "No biased class was given",
    ]


@pytest.mark.parametrize(
    ("copies", "change", "words"),
    [
        ({"055.png": "003.png"}, {}, ["Some training and test images have the same content (1: 003.png = 055.png)"]),
        ({"012.png": "002.png"}, {}, ["Images of one split have the same content (1: 002.png = 012.png)"]),
        ({"004.png": "002.png"}, {}, ["Images of one split", "have different labels (1: 002.png = 004.png)"]),
        (
            {},
            {"artifact": lambda n: str(int(n % 10 not in (0, 4)))},
            ["of malignant have the artifact", "Check that 1 means"],
        ),
        (
            {},
            {"artifact": lambda n: str(int(n % 2 or n % 10 in (0, 4)))},
            ["All training images of malignant", "70 % of the"],
        ),
    ],
)
def test_faults_in_labels_and_copies_of_images_are_noted(
    own: Own, images: Path, tmp_path: Path, copies: dict[str, str], change: dict[str, Any], words: list[str]
) -> None:
    root = tmp_path / "images"
    shutil.copytree(images, root)
    for copy, original in copies.items():
        shutil.copy(root / original, root / copy)
    remarks = own(table_rows(**change), root=root, classes=("benign", "malignant"), biased_class="benign").remarks
    notes = [note for note in remarks if "column 'group'" not in note and not note.startswith("biased_class")]
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes))


def test_copies_have_the_same_bytes(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "abcd"]
    for path, content in zip(files, (b"same", b"same", b"sane", b"sam")):
        path.write_bytes(content)
    assert find_copies(files) == [[0, 1]]


def test_an_inserted_artifact_alone_is_a_controlled_bias(own: Own) -> None:
    data = own(CLEAN, insert=Brightness(), biased_class="malignant", share=0.25).data()
    assert (data.is_inserted, data.has_masks, data.artifact, data.is_localized) == (True, True, "brightness", False)
    inside = data.train.labels == 1
    assert (data.train.has_artifact[inside].sum(), data.train.has_artifact[~inside].sum()) == (5, 0)
    assert data.clean_train is not None
    assert data.test_biased.has_artifact.all()
    assert np.array_equal(data.test_biased.ids, data.test_clean.ids)
    assert own(CLEAN, insert=Brightness()).biased_class == 0
    for share, n in ((0.2, 4), (0.8, 16)):
        with pytest.raises(DataError, match=f"{n} of the 20 training images of the biased class 'benign'.*at least 5"):
            own(CLEAN, insert=Brightness(), share=share).data()


def test_both_learn_from_the_natural_artifact_and_test_by_insertion(own: Own, tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (255, 0, 0, 255)).save(tmp_path / "tag.png")
    data = own(insert=Patch(file=tmp_path / "tag.png", size=0.5, place="top-left")).data()
    assert (data.is_inserted, data.has_masks, data.artifact, data.is_localized) == (True, False, "artifact", True)
    assert data.has_test_masks
    assert data.train.has_artifact.sum() == 8
    assert data.val_clean.ids.tolist() == data.val_biased.ids.tolist() == VAL_CLEAN
    image, _ = data.val_biased.pixels(0)
    assert image[:4, :4].reshape(-1, 3).tolist() == [[255, 0, 0]] * 16
    assert image[5, 5].tolist() == data.val_clean.pixels(0)[0][5, 5].tolist() == [41, 90, 60]


def test_the_column_of_artifact_labels(own: Own) -> None:
    renamed = [{name.replace("artifact", "ruler"): value for name, value in row.items()} for row in table_rows()]
    assert own(renamed, artifact_column="ruler").data().artifact == "ruler"
    for options in ({}, {"insert": Brightness()}):
        with pytest.raises(DataError, match=r"own.csv has no column 'rular' .*Did you mean 'ruler'\?"):
            own(renamed, artifact_column="rular", **options)


def test_what_labels_do_not_say_is_noted(own: Own) -> None:
    rows = table_rows(artifact=lambda n: str(int(n in (0, 2, 4, 6, 8, 50))))
    found = own([{**row, "artifact_annotated": str(int(number < 40))} for number, row in enumerate(rows)])
    assert any(note.startswith("A person gave 40 of the 60 artifact labels") for note in found.remarks)
    assert "A person gave all 60 artifact labels." in own([{**row, "artifact_annotated": "1"} for row in rows]).remarks
    note = "No validation image has the artifact: its effect on them is not available."
    assert found.remarks.count(note) == 1
    assert note not in own(rows, insert=Timestamp()).remarks


@pytest.mark.parametrize(
    ("bit", "words"),
    [
        (lambda n: "", "has nothing as artifact of '000.png'. Allowed: 0 and 1"),
        (lambda n: "maybe", "has 'maybe' as artifact of '000.png'"),
        (lambda n: "0", "None of the 60 images"),
        (lambda n: "1", "Each of the 60 images"),
        (lambda n: str(int(n in (0, 41, 51))), "1 of the 40 training images .* at least 5"),
        (lambda n: str(int(n < 8 and n != 4)), "4 of the 20 training images of the biased class .* at least 5 with"),
        (lambda n: str(int(n < 32 and n % 2 == 0)), "16 of the 20 training images .* and 5 without"),
        (lambda n: str(int(n < 40 and n % 2 == 0)), "20 of the 20 training images of the biased class 'benign'"),
        (lambda n: str(int(n < 5 or 40 <= n < 50)), "Each validation image"),
    ],
)
def test_labels_that_nothing_can_be_learned_from(own: Own, bit: Callable[[int], str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        own(table_rows(artifact=bit))


def test_the_biased_class(own: Own) -> None:
    doubted = table_rows(artifact=lambda n: str(int(n % 10 in (0, 3, 5, 7) or n == 2)))
    unclear = table_rows(artifact=lambda n: str(int(n < (16 if n % 2 else 10))))  # 5 of benign, 8 of malignant
    assert own(unclear).biased_class == 1  # the larger share
    for table, name in ((doubted, "benign"), (doubted, "malignant"), (unclear, "benign")):
        remarks = own(table, biased_class=name).remarks
        is_doubted = table is doubted and name == "benign"
        assert any("biased_class is 'benign', but 12 of" in note for note in remarks) == is_doubted


def test_classes_are_in_the_order_of_the_outputs(own: Own) -> None:
    found = own(classes=("malignant", "unseen", "benign"))
    assert found.data().train.labels[:4].tolist() == [2, 0, 2, 0]
    assert found.biased_class == own(classes=("malignant", "unseen", "benign"), biased_class="2").biased_class == 2
    numbers = table_rows(label=lambda n: "10" if n % 2 else "2")
    for classes, labels in ((None, [2, 10]), ([f"class {n}" for n in range(11)], [2, 10]), (("10", "2"), [1, 0])):
        assert own(numbers, classes=classes).data().train.labels[:2].tolist() == labels
    with pytest.raises(DataError, match="has the label 10, but the 3 classes are 0 to 2"):
        own(numbers, classes=("a", "b", "c"))
    untrained = own(table_rows(label=lambda n: "cyst" if n == 59 else ("benign", "malignant")[n % 2]))
    assert any("No training image is of cyst" in note for note in untrained.remarks)


def test_one_label_of_several(own: Own) -> None:
    cells = ("", "tube", "edema ; tube", "edema|mass|tube")
    rows = table_rows(label=lambda n: cells[n % 4], artifact=lambda n: str(int(n % 3 == 0)))
    for classes in (None, ("mass", "edema", "tube")):
        data = own(rows, label="edema", classes=classes, channels=1, transform=Normalize((0.5,), (0.25,))).data()
        assert data.train[0].image.shape == (1, 8, 8)
        assert data.train.class_names == ("not edema", "edema")
        assert data.train.labels[:4].tolist() == [0, 0, 1, 1]
    with pytest.raises(OptionError, match=r"label is 'oedema', .* Did you mean 'edema'\?"):
        own(rows, label="oedema")
    with pytest.raises(DataError, match="It names several: select one with 'label'"):
        own(table_rows(label=lambda n: cells[1 + n % 3]), classes=("edema", "mass", "tube"))
    with pytest.raises(DataError, match="has no label at all"):
        own(table_rows(label=lambda n: ""), label="edema")


def test_random_splits(own: Own) -> None:
    found = own(table_rows(without=("split",), artifact=lambda n: str(int(n % 4 == 0 or n % 6 == 1))))
    assert found.is_drawn
    assert [len(part) for part in found.parts] == pytest.approx([48, 6, 6], abs=2)
    data = found.data()
    for clean, biased in ((data.val_clean, data.val_biased), (data.test_clean, data.test_biased)):
        assert set(clean.labels) == set(biased.labels) == {0, 1}
    one, same, another = (own(UNSPLIT, seed=seed).data() for seed in (0, 0, 1))
    assert all(getattr(one, name).fingerprint == getattr(same, name).fingerprint for name in SETS)
    assert not np.array_equal(one.train.ids, another.train.ids)
    grouped = own(table_rows(without=("split",), group=lambda n: str(n // 3)), shares=(0.5, 0.3, 0.2))
    assert [len(part) for part in grouped.parts] == pytest.approx([30, 18, 12], abs=2)
    seen = [set(part.ids // 3) for part in grouped.parts]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 20
    assert not any("group" in note for note in grouped.remarks)


LISTED = range(0, 16, 2)  # images of the first class with the artifact


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for row in range(40):
        folder = tmp_path / "data" / ("benign", "malignant")[row % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (row, 90, 60)).save(folder / f"{row:03}.png")
    (tmp_path / "data" / "benign" / "Thumbs.db").write_bytes(b"junk")
    (tmp_path / "data" / ".cache").mkdir()
    rest = "".join(f"{row:03}.png\n" for row in LISTED[3:])
    (tmp_path / "list.txt").write_text(f"benign/000.png\n\n002.png\n  benign/004.png  \n{rest}")
    return tmp_path


def from_folders(base: Path, **options: Any) -> UserImages:
    return UserImages(**{"root": base / "data", "artifacts": base / "list.txt", "size": 8, **options})


def test_class_folders_with_a_list(folders: Path) -> None:
    found = from_folders(folders)
    assert (found.source.class_names, [len(part) for part in found.parts]) == (("benign", "malignant"), [32, 4, 4])
    sets = [getattr(found.data(), name) for name in SETS]
    carry = {int(one.pixels(i)[0][0, 0, 0]) for one in sets for i in np.flatnonzero(one.has_artifact)}
    assert carry == set(LISTED)
    assert from_folders(folders, artifacts=None, insert=Brightness()).data().is_inserted


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("benin/000.png", r"lists 'benin/000.png', .* Did you mean 'benign/000.png'\?"),
        ("Thumbs.db", r"lists 'Thumbs.db', which is not an image"),
        ("both.png", r"lists 'both.png', which is benign/both.png and malignant/both.png: give the path"),
        (None, r"list\.txt is missing"),
    ],
)
def test_a_list_that_does_not_match(folders: Path, line: str | None, words: str) -> None:
    for kind in ("benign", "malignant"):
        Image.new("L", (4, 4)).save(folders / "data" / kind / "both.png")
    (folders / "list.txt").unlink() if line is None else (folders / "list.txt").write_text(f"000.png\n{line}\n")
    with pytest.raises(DataError, match=words):
        from_folders(folders)


def test_folders_of_parts_are_the_split(folders: Path) -> None:
    for row in range(40):
        part, kind = ("train", "train", "val", "test")[row // 10], ("benign", "malignant")[row % 2]
        (folders / "data" / part / kind).mkdir(parents=True, exist_ok=True)
        (folders / "data" / kind / f"{row:03}.png").rename(folders / "data" / part / kind / f"{row:03}.png")
    (folders / "list.txt").write_text("train/benign/000.png\n002.png\n004.png\n006.png\n008.png\n022.png\n")
    data = from_folders(folders, shares=(0.5, 0.3, 0.2)).data()
    assert sorted(data.train.pixels(i)[0][0, 0, 0] for i in range(20)) == list(range(20))
    assert [int(data.val_biased.pixels(0)[0][0, 0, 0]), len(data.val_biased), len(data.test_biased)] == [22, 1, 0]
    (folders / "data" / "val").rename(folders / "data" / "valid")
    with pytest.raises(DataError, match="has a folder 'train', but none called 'val'"):
        from_folders(folders)


def test_folders_may_be_empty_or_nested(folders: Path) -> None:
    (folders / "data" / "cyst").mkdir()
    inner = folders / "data" / "malignant" / "patient 1"
    inner.mkdir()
    (folders / "data" / "malignant" / "001.png").rename(inner / "001.png")
    found = from_folders(folders)
    assert (found.source.class_names, len(found.source)) == (("benign", "cyst", "malignant"), 40)
    with pytest.raises(DataError, match="has no artifact labels: give a list"):
        from_folders(folders, artifacts=None)
    (folders / "other" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="has no image in its folders a"):
        from_folders(folders, root=folders / "other")


def test_bad_images_are_errors_or_recorded(folders: Path) -> None:
    (folders / "data" / "benign" / "004.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"004\.png is empty: .* leave out such images with data\.skip_bad: true\.$"):
        from_folders(folders)
    found = from_folders(folders, skip_bad=True)
    assert len(found.skipped) == 1
    assert sum(int(getattr(found.data(), name).has_artifact.sum()) for name in SETS) == len(LISTED) - 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"share": 0}, OptionError, "above 0 and below 1"),
        ({"seed": -1}, OptionError, "seed must be"),
        ({"channels": 1}, OptionError, "channels is 1, but the transform has 3 means and 3 stds"),
        ({"insert": Plaster()}, OptionError, "'plaster' cannot be inserted into a finished image"),
        ({"artifacts": Path("list.txt")}, OptionError, "or a list of artifacts, not both"),
        ({"shares": (0.5, 0.5)}, OptionError, "three numbers"),
        ({"biased_class": "benin"}, OptionError, r"biased_class is 'benin', .* Did you mean 'benign'\?"),
        ({"classes": ("benign", "benign", "malignant")}, OptionError, "classes has 'benign' twice"),
        ({"classes": ("benign", "malign")}, DataError, r"'malignant', .*nearest of those is 'malign'\. Given: benign"),
        ({"root": Path("nowhere")}, DataError, "There is no folder nowhere"),
        ({"table": Path("gone.csv")}, DataError, r"gone\.csv is missing"),
        ({"table": None, "label": "x"}, OptionError, "which only a table can have"),
        ({"table": None}, DataError, "has no class folders. Put its images into"),
        ({"rows": UNSPLIT, "shares": (0.5, 0.3, 0.3)}, OptionError, "above 0 and sum to 1"),
        ({"rows": table_rows(label=lambda n: "benign")}, DataError, r"All images of .* are of class 'benign'"),
    ],
)
def test_invalid_options_are_rejected(own: Own, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        own(**options)
