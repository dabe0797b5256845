from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def test_a_folder_that_cannot_be_written_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"Cannot write .*run: .*file is not writable\. Choose another"):
        check_run_directory(tmp_path / "file" / "run")
    asked: list[Path] = []
    monkeypatch.setattr("os.access", lambda path, _: asked.append(path))  # for root, everything can be written
    with pytest.raises(RunError, match="Cannot write"):
        check_run_directory(tmp_path / "new" / "run")
    assert asked == [tmp_path]
    assert not (tmp_path / "new").exists()


def test_an_interrupted_stage_is_done_again(tmp_path: Path) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_run(tmp_path, CONFIG) as run:  # noqa: PT012
        assert run.stage("first", lambda: 1) == 1
        run.stage("second", interrupted)
    with open_run(tmp_path, CONFIG) as run:
        assert run.stage("first", interrupted) == 1
        assert run.stage("second", lambda: 2) == 2


@pytest.mark.parametrize("content", [b"", b'{"seconds": 1, "res', b"[]", b'{"seconds": 1}', b"\xff\xfe"])
def test_a_damaged_stage_is_told(tmp_path: Path, content: bytes) -> None:
    with open_run(tmp_path, CONFIG) as run:
        run.stage("first", lambda: 1)
        (tmp_path / "stages" / "first.json").write_bytes(content)
        with pytest.raises(RunError, match=r"first\.json is damaged\. Delete it"):
            run.stage("first", lambda: 2)
        (tmp_path / "stages" / "first.json").unlink()
        assert run.stage("first", lambda: 3) == 3


def test_of_two_that_joined_the_first_whole_stage_stays(tmp_path: Path) -> None:
    with open_run(tmp_path, CONFIG) as run, join_token(run) as word:
        given_up, successor = (join_run(tmp_path, word) for _ in range(2))

        def late() -> str:
            assert successor.stage("vanilla", lambda: "first") == "first"
            return "second"

        assert given_up.stage("vanilla", late) == "first"
        assert run.stage("vanilla", lambda: "third") == "first"


def test_a_result_that_cannot_be_kept_is_not_half_kept(tmp_path: Path) -> None:
    with open_run(tmp_path, CONFIG) as run:
        with pytest.raises(TypeError):
            run.stage("a", lambda: {"x": object()})
        assert run.stage("a", lambda: 3) == 3
    assert [path.name for path in (tmp_path / "stages").iterdir()] == ["a.json"]


def test_another_config_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    with open_run(tmp_path, CONFIG):
        pass
    before = (tmp_path / "config.yaml").read_bytes()
    with (
        pytest.raises(RunError, match=r"\(seed was 0, is now 1, size was None, is now 64\)"),
        open_run(tmp_path, {**CONFIG, "seed": 1, "size": 64}),
    ):
        pass
    assert (tmp_path / "config.yaml").read_bytes() == before
    with open_run(tmp_path, CONFIG):  # the refused one gave the lock back
        pass


def test_what_is_known_of_a_config_is_compared_key_by_key(tmp_path: Path) -> None:
    with open_run(tmp_path, {**CONFIG, "tuning": {"epochs": 10, "rate": 0.1, "found": 3}}):
        pass
    check_run_directory(tmp_path, {"seed": 0, "strengths": (1.0, 10.0), "tuning": {"epochs": 10}})
    with pytest.raises(RunError, match=r"\(tuning\.epochs was 10, is now None\)"):
        check_run_directory(tmp_path, {"tuning": {"epochs": None}})
    with pytest.raises(RunError, match=r"\(tuning\.epochs was 10, is now 5, tuning\.new was None, is now 1\)"):
        check_run_directory(tmp_path, {"seed": 0, "tuning": {"epochs": 5, "new": 1}})
    with (
        pytest.raises(RunError, match=r"\(tuning\.found was 3, is now None\)"),
        open_run(tmp_path, {**CONFIG, "tuning": {"epochs": 10, "rate": 0.1}}),
    ):
        pass


def test_a_place_for_a_run_is_judged_without_a_change(tmp_path: Path) -> None:
    check_run_directory(tmp_path / "not" / "there")
    check_run_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with open_run(tmp_path / "run", CONFIG):
        check_run_directory(tmp_path / "run")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        check_run_directory(tmp_path)
    with pytest.raises(RunError, match="is a file, not a run directory"):
        check_run_directory(tmp_path / "run" / "config.yaml")
    (tmp_path / "run" / "config.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(RunError, match=r"config\.yaml is damaged"):
        check_run_directory(tmp_path / "run")


def test_a_run_is_opened_once_at_a_time(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from hansfree.errors import RunError\nfrom hansfree._internal.store import open_run\n"
        "try:\n    with open_run(Path(sys.argv[1]), {'seed': 0}): print('opened')\n"
        "except RunError as error: print(error)"
    )

    def another_process() -> str:
        command = [sys.executable, "-c", program, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with open_run(tmp_path, {"seed": 0}):
        assert "is in use by another process. Wait for it" in another_process()
        with pytest.raises(RunError, match="in use"), open_run(tmp_path, {"seed": 0}):
            pass
    assert another_process() == "opened\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.yaml", "", r"config\.yaml is damaged"),
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
