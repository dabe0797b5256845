from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

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


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "table.npz"
    with written_atomically(path) as temporary:
        assert temporary.parent == path.parent  # else the replacement would not be atomic
        assert temporary.suffix == ".npz"  # numpy adds it otherwise, and writes another file
        temporary.write_bytes(b"first half")
        assert not path.exists()
    assert path.read_bytes() == b"first half"
    assert names(path.parent) == {"table.npz"}


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with pytest.raises(KeyboardInterrupt), written_atomically(path) as temporary:  # noqa: PT012 (the error is ours)
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    assert names(tmp_path) == {"a.txt"}


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    path, settled = tmp_path / "a.txt", list[bytes]()

    def fsync(number: int) -> None:
        assert not path.exists()
        settled.append(os.pread(number, 100, 0))

    monkeypatch.setattr(os, "fsync", fsync)
    with written_atomically(path, durable=durable) as temporary:
        temporary.write_bytes(b"all of it")
    assert settled == ([b"all of it"] if durable else [])
    assert path.read_bytes() == b"all of it"


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "features-1"
    with folder_written_atomically(path) as temporary:
        (temporary / "0.npy").write_bytes(b"0")
        assert not path.exists()
    assert names(path) == {"0.npy"}
    assert names(path.parent) == {"features-1"}


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stop"), folder_written_atomically(tmp_path / "a"):
        raise RuntimeError("stop")
    assert not names(tmp_path)
    (tmp_path / "a").write_text("a file")
    with pytest.raises(OSError, match="a"), folder_written_atomically(tmp_path / "a"):
        pass
    assert names(tmp_path) == {"a"}


def test_json_and_sizes(tmp_path: Path) -> None:
    content = {"ü": [1, 0.1, None, "x"], "b": {"c": True}}
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert "ü" in text
    sizes = {64: "64 B", 1000: "1 KB", 100352: "100 KB", 3211264: "3.21 MB", 999600: "1 MB", 2e9: "2 GB"}
    assert [format_bytes(number) for number in sizes] == list(sizes.values())


def test_what_a_killed_process_left_is_not_part_of_a_new_folder(tmp_path: Path) -> None:
    left = tmp_path / f".a.{os.getpid()}.part"
    left.mkdir()
    (left / "9.npy").write_bytes(b"old")
    with folder_written_atomically(tmp_path / "a") as temporary:
        (temporary / "0.npy").write_bytes(b"new")
    assert names(tmp_path / "a") == {"0.npy"}


def test_where_another_process_was_first_its_folder_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with folder_written_atomically(path) as temporary:
        (temporary / "0.npy").write_bytes(b"ours")
        path.mkdir()
        (path / "0.npy").write_bytes(b"theirs")
    assert (path / "0.npy").read_bytes() == b"theirs"
    assert names(tmp_path) == {"a"}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_arrays_are_told_wherever_the_damage_is(tmp_path: Path, save: Callable[..., None]) -> None:
    path, stage = tmp_path / "cases.npz", tmp_path / "stages" / "cases.json"
    save(path, labels=np.arange(300) % 7)
    whole = path.read_bytes()
    assert read_arrays(path)["labels"].sum() == (np.arange(300) % 7).sum()
    wrong = [whole[:cut] for cut in range(0, len(whole), 20)]
    wrong += [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 7)]
    found = 0
    for content in wrong:
        path.write_bytes(content)
        try:
            read_arrays(path, stage=stage)  # not every bit of a zip file says something
        except RunError as error:
            found += "cases.npz is damaged. Delete it and " in str(error)
            found += f"{stage}, and resume the run" in str(error)
    assert found > len(wrong)
