"""The reader of tables, class folders and artifact lists."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hansfree.data.listing import Listing, list_images, read_annotations, read_table
from hansfree.errors import DataError, HansfreeError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_read_by_its_header(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", '\ufeffimage, age\na, 3\n\n"b, c",4\n')
    assert read_table(path, ["age"]) == [{"image": "a", "age": "3"}, {"image": "b, c", "age": "4"}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is missing"),
        (b"", r"has no column 'image'\. It has: nothing"),
        (b"images;age,3\na,3\n", "has no column 'image'"),
        (b"images,age\na,3\n", r"has no column 'image'\. Did you mean 'images'\? It has: images, age"),
        (b"image;age\na;3\n", "has semicolons between its columns"),
        (b"image\tage\na\t3\n", "has tabs between its columns"),
        (b"image,age,age\na,x,y\n", "has the column 'age' twice"),
        (b"image,age\n", "has a header but no rows"),
        (b"image,age\na,3\nb\n", "has 1 values in row 3, its header has 2"),
        (b"image,age\n,3\n", "has a row without image: , 3"),
        (b"image,age\na,\xff\xfe\n", "cannot be read as a CSV table"),
    ],
)
def test_a_bad_table_is_one_sentence_with_its_path(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"t\.csv {words}"):
        read_table(path, ["image", "age"], filled=["image"])


@given(content=st.binary(max_size=200) | st.text(alphabet='image,label"\r\n\t 01;\0\ufeffé', max_size=80))
@settings(max_examples=200)
def test_any_bytes_are_a_table_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with contextlib.suppress(HansfreeError):
        rows = read_table(path, ("image",))
        assert rows
        assert all("image" in row and list(row) == list(rows[0]) for row in rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,label\na,x\na,y\n", "lists .*a twice"),
        ("image,label,split\na,x,trian\n", r"puts 'a' into the split 'trian'\. Did you mean 'train'\?"),
        ("image,label,split\na,x,train\n", "has no image in the split 'val'"),
        ("image,label,split,group\na,x,train,1\nb,x,val,1\n", "has group '1' in train and in val"),
    ],
)
def test_a_table_that_contradicts_itself_is_rejected(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Listing.read(tmp_path, table=write(tmp_path / "t.csv", text))


def test_a_table_says_which_labels_a_person_gave(tmp_path: Path) -> None:
    text = "image,label,spot,spot_annotated\na,x,1,1\nb,y,1,0\nc,x,0,0\n"
    listing = Listing.read(tmp_path, table=write(tmp_path / "a.csv", text))
    annotated = listing.is_annotated("spot")
    assert annotated is not None
    assert annotated.tolist() == [True, False, False]
    assert listing.is_annotated("image") is None
    assert read_annotations(listing.rows, "spot", place=tmp_path) == {"a": True}
    assert read_annotations(listing.rows, "other", place=tmp_path) == {}
    with pytest.raises(DataError, match="as spot_annotated of 'a'"):
        read_annotations([{"image": "a", "spot": "1", "spot_annotated": ""}], "spot", place=tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "labels", "annotated"),
    [
        ("a.csv", "image,artifact,artifact_annotated\nx/a.png,0,1\nx/b.png,1,0\nx/c.png,1,1\n", [0, 1, 1], [1, 0, 1]),
        ("b.csv", "image\nx/a.png\n", [1, 0, 0], None),
        ("c.csv", "image,artifact\nx/a.png,1\nc.png,0\nb.png,1\n", [1, 1, 0], None),
        ("b.txt", "x/a.png\n\n", [1, 0, 0], None),
    ],
)
def test_a_list_beside_folders(
    tmp_path: Path, name: str, text: str, labels: list[int], annotated: list[int] | None
) -> None:
    paths = [str(tmp_path / "x" / each) for each in ("a.png", "b.png", "c.png")]
    listing = Listing(place=tmp_path, paths=paths, labels=np.zeros(3, dtype=int), class_names=("x",))
    found, known = listing.read_artifact_list(write(tmp_path / name, text), column="artifact")
    assert found.tolist() == [bool(label) for label in labels]
    assert (None if known is None else known.tolist()) == (annotated and [bool(bit) for bit in annotated])


def test_folders_are_searched_for_images(tmp_path: Path) -> None:
    for name in ("b.png", "a/c.jpg", "a/._d.png", ".hidden/e.png", "f.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (2, 2)).save(path, "PNG")
    assert list_images(tmp_path) == [str(tmp_path / "a" / "c.jpg"), str(tmp_path / "b.png")]
