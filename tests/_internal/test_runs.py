"""The run directory: stages are done once, a damaged or foreign one is an error, one process at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from hansfree._internal.files import folder_written_atomically, written_atomically
from hansfree._internal.store import check_run_directory, join_run, join_token, open_run
from hansfree.errors import RunError

CONFIG = {"artifact": "timestamp", "seed": 0, "rate": 1e-05, "strengths": (1.0, 10.0), "note": None}


def test_a_stage_is_done_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def work() -> dict[str, Any]:
        calls.append(1)
        return {"rows": [1, 2.5, None], "pair": (1, 2)}

    for _ in range(2):
        with open_run(tmp_path / "run", CONFIG) as run:
            results = [run.stage("train demo", work) for _ in range(2)]
            assert results == [{"rows": [1, 2.5, None], "pair": [1, 2]}] * 2  # the same the first time as kept
            assert run.seconds["train demo"] >= 0
    assert len(calls) == 1
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"] for line in lines] == ["train demo"]


def test_a_stage_that_was_stopped_is_done_again(tmp_path: Path) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_run(tmp_path, CONFIG) as run:  # noqa: PT012
        run.stage("first", lambda: 1)
        run.stage("second", stopped)
    with open_run(tmp_path, CONFIG) as run:
        assert run.stage("first", stopped) == 1
        assert run.stage("second", lambda: 2) == 2


def test_what_a_killed_process_was_writing_is_deleted(tmp_path: Path) -> None:
    """Written as in the process that was killed: its block has not ended."""
    file, folder = tmp_path / "corrected" / "a.safetensors", tmp_path / "activations" / "key"
    with open_run(tmp_path, CONFIG):
        pass
    with written_atomically(file) as part, folder_written_atomically(folder) as parts:
        part.write_bytes(b"half")
        (parts / "shard").write_bytes(b"half")
        (tmp_path / "corrected" / "b.part.txt").write_text("a file of the run")
        with open_run(tmp_path, CONFIG):
            found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
        assert found == {".lock", "config.yaml", "corrected/b.part.txt"}
        part.write_bytes(b"whole")  # so that the blocks end
        parts.mkdir()


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        _flip,
        Path.unlink,
        lambda file: file.write_bytes(file.read_bytes()[:-3]),
        *(partial(Path.write_bytes, data=data) for data in (b"", b"[]", b'{"seconds": 1}', b"\xff\xfe")),
    ],
)
@pytest.mark.parametrize("name", ["stages/first.json", "weights.bin"])
def test_a_stage_is_computed_again_where_its_result_or_a_file_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], object]
) -> None:
    def work() -> float:
        with written_atomically(tmp_path / "weights.bin") as temporary:
            temporary.write_bytes(bytes(100))
        return 0.125

    with open_run(tmp_path, CONFIG) as run:
        run.stage("second", lambda: 2)
        assert run.stage("first", work) == 0.125
        before = (tmp_path / "weights.bin").read_bytes()
        damage(tmp_path / name)
        assert run.stage("first", work) == 0.125
        assert (tmp_path / "weights.bin").read_bytes() == before
        run.stage("second", pytest.fail)
    assert (name == "stages/first.json" and damage is Path.unlink) or Path(name).name in caplog.text


def test_of_two_that_joined_the_first_whole_stage_stays(tmp_path: Path) -> None:
    with open_run(tmp_path, CONFIG) as run, join_token(run) as word:
        given_up, successor = (join_run(tmp_path, word) for _ in range(2))

        def late() -> str:
            assert successor.stage("vanilla", lambda: "first") == "first"
            return "second"

        assert given_up.stage("vanilla", late) == "first"
        assert run.stage("vanilla", lambda: "third") == "first"


def test_another_config_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    config = {**CONFIG, "tuning": {"epochs": 10, "rate": 0.1, "found": 3}}
    with open_run(tmp_path, config):
        pass
    before = (tmp_path / "config.yaml").read_bytes()
    for change, words in (
        ({"seed": 1, "size": 64}, r"\(seed was 0, is now 1, size was None, is now 64\)"),
        ({"tuning": {"epochs": 10, "rate": 0.1}}, r"\(tuning\.found was 3, is now None\)"),
    ):
        with pytest.raises(RunError, match=words), open_run(tmp_path, {**config, **change}):
            pass
    assert (tmp_path / "config.yaml").read_bytes() == before
    with open_run(tmp_path, config):  # the refused one gave the lock back
        pass
    check_run_directory(tmp_path, {"seed": 0, "strengths": (1.0, 10.0), "tuning": {"epochs": 10}})
    with pytest.raises(RunError, match=r"\(tuning\.epochs was 10, is now 5, tuning\.new was None, is now 1\)"):
        check_run_directory(tmp_path, {"seed": 0, "tuning": {"epochs": 5, "new": 1}})


def test_a_place_for_a_run_is_judged_without_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_run_directory(tmp_path / "not" / "there")
    assert list(tmp_path.iterdir()) == []
    with open_run(tmp_path / "run", CONFIG):
        check_run_directory(tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    with pytest.raises(RunError, match="is a file, not a run directory"):
        check_run_directory(config)
    with pytest.raises(RunError, match=r"Cannot write .*run: .*config\.yaml is not writable\. Choose another"):
        check_run_directory(config / "run")
    asked: list[Path] = []
    monkeypatch.setattr("os.access", lambda path, _: asked.append(path))  # for root, everything can be written
    with pytest.raises(RunError, match="Cannot write"):
        check_run_directory(tmp_path / "new" / "run")
    assert asked == [tmp_path]


def test_a_run_is_opened_once_at_a_time(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from hansfree.errors import RunError\nfrom hansfree._internal.store import open_run\n"
        "try:\n    with open_run(Path(sys.argv[1]), {'seed': 0}): print('opened')\n"
        "except RunError as error: print(error)"
    )
    with open_run(tmp_path, {"seed": 0}):
        command = [sys.executable, "-c", program, str(tmp_path)]
        other = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "is in use by another process. Wait for it" in other
        with pytest.raises(RunError, match="in use"), open_run(tmp_path, {"seed": 0}):
            pass


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.yaml", "a: [1", r"config\.yaml is damaged"),
        ("config.yaml", "theme: dark\n", "not the config of a hansfree run"),
        ("thesis.txt", "years of work", "is not empty and holds no run"),
        (".config.yaml.123.part.yaml", "left by a kill", None),
    ],
)
def test_a_folder_that_holds_something(tmp_path: Path, name: str, content: str, words: str | None) -> None:
    (tmp_path / name).write_text(content)
    if words is None:
        with pytest.raises(ValueError, match="mine"), open_run(tmp_path, CONFIG):
            raise ValueError("mine")
        with open_run(tmp_path, CONFIG):  # the error gave the lock back
            pass
        stored = yaml.safe_load((tmp_path / "config.yaml").read_text())
        assert list(stored.items()) == list({**CONFIG, "strengths": [1.0, 10.0]}.items())
    else:
        with pytest.raises(RunError, match=words), open_run(tmp_path, CONFIG):
            pass
        assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != ".lock"} == {name: content}
