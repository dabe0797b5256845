"""Which bits are a person's, and that it is told: in a table, and in a list beside folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.errors import DataError
from hansfree.studies.listing import read_marked, read_marked_list, read_rows, tell_marked


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_tells_which_bits_are_a_persons(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "image,spot,spot_marked\na,1,1\nb,1,0\nc,0,0\n")
    rows = read_rows(table, ("image",), filled=("image",))
    marked = read_marked(rows, "spot", table=table)
    assert marked is not None
    assert marked.tolist() == [True, False, False]
    assert read_marked(rows, "image", table=table) is None
    with pytest.raises(DataError, match="as spot_marked of 'a'"):
        read_marked([{"image": "a", "spot_marked": ""}], "spot", table=table)


def test_a_list_beside_folders_tells_it_too(tmp_path: Path) -> None:
    paths = [str(tmp_path / "x" / name) for name in ("a.png", "b.png", "c.png")]
    told = write(tmp_path / "a.csv", "image,artifact,artifact_marked\nx/a.png,0,1\nx/b.png,1,0\nx/c.png,1,1\n")
    marked = read_marked_list(told, paths, root=tmp_path, column="artifact")
    assert marked is not None
    assert marked.tolist() == [True, False, True]
    for other in ("b.csv", "b.txt"):
        silent = write(tmp_path / other, "image\nx/a.png\n")
        assert read_marked_list(silent, paths, root=tmp_path, column="artifact") is None


def test_it_is_said_in_one_line() -> None:
    bits = np.array([True, True, False, False, False])
    told = tell_marked(np.array([True, False, False, False, False]), bits)
    assert told.startswith(
        "Of the 5 artifact bits, a person marked 1 and the labelling page proposed 4 (1 of these with the artifact)."
    )
    assert tell_marked(np.ones(5, dtype=bool), bits) == "A person marked all 5 artifact bits."
