"""ArtifactLabels and their table: whole, resumed, and every column of the user's kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.discovery.label.ranking import (
    NO,
    UNKNOWN,
    YES,
    ArtifactLabels,
    labels_of,
    read_labels,
    write_labels,
)
from hansfree.errors import DataError

STEPS = st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.booleans()), max_size=12)


def unknown(n: int = 10) -> np.ndarray:
    return np.full(n, UNKNOWN)


@given(STEPS)
def test_undo_goes_back_through_every_state(steps: list[tuple[list[int], bool]]) -> None:
    marks = ArtifactLabels(unknown())
    states = []
    for images, has_artifact in steps:
        states.append(marks.values.copy())
        marks.set(images, has_artifact=has_artifact)
        assert set(marks.values[images]) == {YES if has_artifact else NO}
    assert marks.steps == len(steps)
    for state, (images, _) in zip(reversed(states), reversed(steps)):
        assert marks.undo() == sorted(set(images))
        np.testing.assert_array_equal(marks.values, state)
    assert marks.undo() == []


@pytest.mark.parametrize("images", [[], [-1], [10], [0, 10]])
def test_images_that_are_not_there_are_refused(images: list[int]) -> None:
    marks = ArtifactLabels(unknown())
    with pytest.raises(DataError, match="0 to 9"):
        marks.set(images, has_artifact=True)
    assert marks.steps == 0
    assert marks.count(UNKNOWN) == 10


@given(st.lists(st.sampled_from([UNKNOWN, NO, YES]), min_size=1, max_size=30), st.booleans())
def test_what_was_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], ranked: bool
) -> None:
    path = tmp_path_factory.mktemp("marks") / "artifacts.csv"
    rows = [{"image": f"a, {row}.png", "label": 'a "word"', "site": ""} for row in range(len(values))]
    marks, names = np.array(values), [row["image"] for row in rows]
    write_labels(path, rows, marks, np.ones(len(values), dtype=bool) if ranked else None, column="ruler")
    np.testing.assert_array_equal(read_labels(path, names, column="ruler"), marks)


def test_images_that_left_or_joined_the_list_do_not_move_the_marks(tmp_path: Path) -> None:
    path = tmp_path / "artifacts.csv"
    rows = [{"image": name, "label": "x"} for name in "abc"]
    write_labels(path, rows, np.array([YES, NO, UNKNOWN]), None, column="artifact")
    assert read_labels(path, ["new", "b", "a"], column="artifact").tolist() == [UNKNOWN, NO, YES]


def test_bits_that_the_users_own_table_has_count_as_marks() -> None:
    rows = [{"image": "a", "artifact": "1"}, {"image": "b", "artifact": ""}, {"image": "c", "artifact": "false"}]
    assert labels_of(rows, "abc", column="artifact", place=Path("x.csv")).tolist() == [YES, UNKNOWN, NO]
    assert labels_of(rows, "abc", column="ruler", place=Path("x.csv")).tolist() == [UNKNOWN] * 3


def test_a_bit_that_is_none_is_refused() -> None:
    rows = [{"image": "a", "artifact": "maybe"}]
    with pytest.raises(DataError, match=r"'maybe' as artifact of 'a'"):
        labels_of(rows, ["a"], column="artifact", place=Path("x.csv"))


def test_the_artifact_column_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "artifacts.csv"
    write_labels(path, [{"artifact": "1", "image": "a"}], np.array([NO]), None, column="artifact")
    assert path.read_text() == "artifact,image,artifact_annotated\n0,a,1\n"


def test_a_table_that_a_spreadsheet_wrote_keeps_its_marks() -> None:
    rows = [
        {"image": "a", "artifact": "True", "artifact_annotated": "TRUE"},
        {"image": "b", "artifact": "False", "artifact_annotated": "True"},
        {"image": "c", "artifact": "True", "artifact_annotated": "False"},
        {"image": "d", "artifact": "", "artifact_annotated": "False"},
    ]
    marks = labels_of(rows, "abcd", column="artifact", place=Path("x.csv"))
    assert marks.tolist() == [YES, NO, UNKNOWN, UNKNOWN]
    rows[0]["artifact_annotated"] = "yes"
    with pytest.raises(DataError, match=r"'yes' as artifact_annotated of 'a'"):
        labels_of(rows, "abcd", column="artifact", place=Path("x.csv"))
