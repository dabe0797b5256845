"""Files and folders appear whole or not at all; damaged arrays are errors of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hansfree._internal.files import (
    folder_written_atomically,
    format_bytes,
    read_arrays,
    write_json,
    write_text,
    written_atomically,
)
from hansfree.errors import RunError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_whole_and_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, settled = tmp_path / "new" / "folder" / "table.npz", list[bytes]()

    def fsync(number: int) -> None:
        assert not path.exists()
        settled.append(os.pread(number, 100, 0))

    monkeypatch.setattr(os, "fsync", fsync)
    with written_atomically(path) as temporary:
        assert temporary.parent == path.parent  # else the replacement would not be atomic
        assert temporary.suffix == ".npz"  # numpy adds it otherwise, and writes another file
        temporary.write_bytes(b"all of it")
        assert not path.exists()
    assert settled == [b"all of it"]
    assert path.read_bytes() == b"all of it"
    assert names(path.parent) == {"table.npz"}


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"
    left = path.parent / f".a.{os.getpid()}.part"
    left.mkdir(parents=True)
    (left / "9.npy").write_bytes(b"of a killed process")
    with folder_written_atomically(path) as temporary:
        (temporary / "0.npy").write_bytes(b"0")
        assert not path.exists()
    assert names(path) == {"0.npy"}
    with folder_written_atomically(path) as temporary:  # another process was first: its folder stays
        (temporary / "0.npy").write_bytes(b"ours")
    assert (path / "0.npy").read_bytes() == b"0"
    assert names(path.parent) == {"a", left.name}


@pytest.mark.parametrize("write", [written_atomically, folder_written_atomically])
def test_an_error_leaves_what_was_there(tmp_path: Path, write: Callable[..., Any]) -> None:
    write_text(tmp_path / "a.txt", "before")
    for name in ("new", "a.txt"):
        with pytest.raises(KeyboardInterrupt), write(tmp_path / name):
            raise KeyboardInterrupt
    with pytest.raises(OSError, match=r"a\.txt"), folder_written_atomically(tmp_path / "a.txt"):
        pass  # a folder cannot replace a file
    assert (tmp_path / "a.txt").read_text() == "before"
    assert names(tmp_path) == {"a.txt"}


def test_json_and_sizes(tmp_path: Path) -> None:
    content = {"ü": [1, 0.1, None, "x"], "b": {"c": True}}
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "ü" in text
    sizes = {64: "64 B", 1000: "1 KB", 100352: "100 KB", 3211264: "3.21 MB", 999600: "1 MB", 2e9: "2 GB"}
    assert [format_bytes(number) for number in sizes] == list(sizes.values())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_arrays_are_an_error_wherever_the_damage_is(tmp_path: Path, save: Callable[..., None]) -> None:
    path, stage = tmp_path / "cases.npz", tmp_path / "stages" / "cases.json"
    save(path, labels=np.arange(300) % 7)
    whole = path.read_bytes()
    assert read_arrays(path)["labels"].sum() == (np.arange(300) % 7).sum()
    wrong = [whole[:cut] for cut in range(0, len(whole), 60)]
    wrong += [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 14)]
    found = 0
    for content in wrong:
        path.write_bytes(content)
        try:
            read_arrays(path, stage=stage)  # not every bit of a zip file says something
        except RunError as error:
            found += f"cases.npz is damaged. Delete it and {stage}, and resume the run" in str(error)
    assert found > len(wrong) / 2
