"""How the command line ends when something goes wrong: a sentence and a code, never a traceback."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hansfree import cli
from hansfree.cli.terminal import failure_of, write_traceback
from hansfree.errors import DataError

Fail = Callable[[BaseException], tuple[int, str]]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Fail:
    """Let a command raise: (exit code, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANSFREE_DEBUG", raising=False)

    def inside(error: BaseException) -> tuple[int, str]:
        def stop(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("hansfree.pipeline.config.read_run_file", stop)
        monkeypatch.setattr(sys, "argv", ["hansfree", "check", "run.yaml"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, capsys.readouterr().err

    return inside


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DataError("No image."), "No image."),
        (OSError(errno.ENOSPC, "No space left", "/x/y"), "No space left (/x/y). Free some space, then run the same"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "Permission denied (/x)."),
        (MemoryError(), "Out of memory. Reduce `batch_size` or the image size."),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "Out of memory."),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "Out of memory."),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "A process that reads images died"),
    ],
)
def test_errors_of_users_and_system_are_one_line(fail: Fail, tmp_path: Path, error: Exception, sentence: str) -> None:
    code, err = fail(error)
    assert code == 1
    assert err.startswith(f"Error: {sentence}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_says_how_to_resume(fail: Fail) -> None:
    code, err = fail(KeyboardInterrupt())
    assert code == 130
    assert err.splitlines()[-1] == "Stopped. Run the same command again to resume."
    assert "Traceback" not in err


def test_the_traceback_of_an_internal_error_is_written_to_a_file(fail: Fail, tmp_path: Path) -> None:
    code, err = fail(ZeroDivisionError("by\nzero"))
    assert code == 70
    assert err.startswith("Error: Internal error (ZeroDivisionError: by). Please report it with the log ")
    assert "Traceback" not in err
    (log,) = tmp_path.iterdir()
    assert str(log) in err
    text = log.read_text()
    assert text.startswith("hansfree check run.yaml\nPython ")
    assert "Traceback (most recent call last)" in text
    assert "in stop" in text


def test_debugging_shows_the_traceback(fail: Fail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSFREE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert not list(tmp_path.iterdir())


def test_a_traceback_is_written_elsewhere_if_the_folder_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("gone", "spare"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    os.rmdir(tmp_path / "gone")  # even root cannot write here
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    log = write_traceback(ValueError("x"))
    assert log.parent == tmp_path / "spare"
    assert "ValueError: x" in log.read_text()
    assert "(KeyError: )" in failure_of(KeyError())[0]
    assert failure_of(OSError("odd"))[1] == 70  # it came from a library, not from the system
    monkeypatch.chdir(tmp_path)
