"""An engine that is not there is told in one sentence, before anything is loaded."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from hansfree import cli
from hansfree.errors import HansfreeError, OptionError, RunError
from hansfree.pipeline.executors import open_executor
from tests.pipeline.user import write_run


def test_without_ray_the_flag_gives_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    monkeypatch.setattr(sys, "argv", ["hansfree", "run", str(write_run(tmp_path / "run.yaml")), "--engine", "ray"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    told = capsys.readouterr().err
    assert told == "Error: ray is not installed. In your copy of the repository: pip install -e '.[ray]'.\n"


@pytest.mark.parametrize(
    ("name", "address", "sentence"),
    [
        ("rai", None, r"engine is 'rai'\. Did you mean 'ray'\?"),
        ("local", "auto", "An address is that of a Ray cluster"),
        ("ray", "ray://head:10001", r"is 'ray://head:10001'\. Allowed: auto, or HOST:PORT"),
        ("ray", "head", r"is 'head'\. Allowed: auto, or HOST:PORT"),
    ],
)
def test_wrong_options_are_refused(name: str, address: str | None, sentence: str) -> None:
    if name == "ray":
        pytest.importorskip("ray")
    with pytest.raises(OptionError, match=sentence), open_executor(name, address=address):
        pass


def test_an_address_where_nobody_answers_is_told_at_once() -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused for sure
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=rf"^No answer from {address} "), open_executor("ray", address=address):
            pass


def test_what_ray_says_about_a_missing_cluster_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def fail(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nDetails.")

    monkeypatch.setattr(ray, "init", fail)
    with (
        pytest.raises(HansfreeError, match=r"at auto \(Could not find any running Ray instance\)\. Start it"),
        open_executor("ray", address="auto"),
    ):
        pass
