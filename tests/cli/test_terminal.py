"""Progress bars, lines for finished stages, the first screen, and how the command line ends after an error."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from tqdm.auto import tqdm

from hansfree import cli
from hansfree._internal.progress import progress_bars
from hansfree.cli import terminal
from hansfree.cli.terminal import failure_of, write_traceback
from hansfree.errors import DataError
from hansfree.evaluation.results import Row, load_results
from hansfree.report import summarize
from tests.report.conftest import META, MakeRun, World, make_run

__all__ = ["make_run"]

Fail = Callable[[BaseException], tuple[int, str]]


def record(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, height: int = 5) -> io.StringIO:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=is_terminal, width=100, height=height, color_system=None)
    monkeypatch.setattr(terminal, "errors", console)
    return stream


def lines_of(stream: io.StringIO) -> list[str]:
    """Return the lines of finished stages, without their seconds."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    return re.findall(r"(\S[^\n\r]*?: \d+/\d+) in \d+\.\d s", plain)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_every_finished_stage_leaves_one_line(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    stream = record(monkeypatch, is_terminal=is_terminal)
    with terminal.progress_bars() as progress:
        for i in range(9):  # more than the terminal has lines
            assert list(progress(iter("ab"), total=2, label=f"stage {i} [x]")) == ["a", "b"]
    assert lines_of(stream) == [f"stage {i} [x]: 2/2" for i in range(9)]
    if not is_terminal:
        assert stream.getvalue().count("\n") == 9, "a log holds nothing but the lines"


def test_an_unfinished_or_empty_stage_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = record(monkeypatch, is_terminal=False)

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    with terminal.progress_bars() as progress:
        assert list(progress([], total=0, label="nothing")) == []
        with pytest.raises(OSError, match="disk"):
            list(progress(broken(), total=2, label="broken"))
        steps = progress(range(2), total=2, label="dropped")
        next(steps)
        del steps
    assert stream.getvalue() == ""


def test_a_stage_whose_last_step_is_not_consumed_is_finished_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = record(monkeypatch, is_terminal=False)
    with terminal.progress_bars() as progress:
        steps = progress(range(3), total=3, label="training")
        for _ in range(3):
            next(steps)
        assert lines_of(stream) == [], "its last step is in progress"
        del steps
        assert lines_of(stream) == [], "Python drops a Ctrl-C that comes while something dropped is printing"
        next(progress(range(1), total=1, label="next"))
        assert lines_of(stream) == ["training: 3/3"]
    assert lines_of(stream) == ["training: 3/3", "next: 1/1"]


def test_a_long_stage_is_reported_in_between_where_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = record(monkeypatch, is_terminal=False)
    monkeypatch.setattr("hansfree._internal.progress._INTERVAL", -1.0)
    with terminal.progress_bars() as progress:
        list(progress(range(2), total=2, label="training"))
    assert "training: 1/2 after 0 s\n" in stream.getvalue()


def test_a_notebook_has_bars_of_tqdm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=shell))
    bars: list[dict[str, object]] = []

    class Recorded(tqdm):  # type: ignore[type-arg]
        def __init__(self, steps: Iterable[int], **options: object) -> None:
            bars.append(options)
            super().__init__(steps, **options)

    monkeypatch.setattr("tqdm.auto.tqdm", Recorded)
    with progress_bars() as progress:
        assert list(progress(iter([1, 2]), total=2, label="training")) == [1, 2]
    assert bars == [{"total": 2, "desc": "training", "leave": False}]
    assert "training:   0%" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    with progress_bars() as progress:  # IPython in a terminal is none
        list(progress(iter([1]), total=1, label="plain"))
    assert len(bars) == 1


def test_the_first_screen_fits_into_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, make_run: MakeRun
) -> None:
    def add(rows: list[Row]) -> list[Row]:
        names = [f"p-clarc@{name}" for name in ("svm", "ridge", "lasso")]
        return [*rows, *(replace(row, method=name) for name in names for row in rows if row.method == "p-clarc")]

    monkeypatch.setattr(terminal.console, "width", 80, raising=False)
    summary = summarize(load_results(make_run(change=add, meta=META | {"recommended": "rr-clarc"})))
    terminal.show_summary(summary)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0] == " ✓ Corrected  RR-ClArC, recommended by this run"
    (flips,) = (line for line in lines if line.startswith("Flip rate"))
    tile = summary.tiles[0]
    numbers = " ".join(f"{number.value} ({number.interval})" for number in (tile.before, tile.after))
    assert " ".join(flips.split()) == f"Flip rate, % {numbers} ✓ {tile.change}"
    (ours,) = (line for line in lines if line.startswith("RR-ClArC"))
    assert ours.split() == ["RR-ClArC", "✓", "Corrected", "6.0", "87.1", "91.6"]
    place = next(number for number, line in enumerate(lines) if line.startswith("method"))
    assert len(lines[place + 1 : -1]) == 8
    assert lines[-1] == f"{len(summary.lines) - 8} more: see the report."


def test_what_stands_in_for_flips_is_said(capsys: pytest.CaptureFixture[str], make_run: MakeRun) -> None:
    terminal.show_summary(summarize(load_results(make_run(**World((60, 40, 30)).parts()))))
    out = " ".join(capsys.readouterr().out.split())
    assert "Effect along the direction: Stands in for the flip rate, as the plaster artifact cannot be inserted" in out


# Errors: a sentence and an exit code, never a traceback


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
    assert (code, err.splitlines()[-1]) == (130, "Stopped. Run the same command again to resume.")
    assert "Traceback" not in err


def test_the_traceback_of_an_internal_error_is_written_to_a_file(
    fail: Fail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setenv("HANSFREE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert [*tmp_path.iterdir()] == [log]


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
