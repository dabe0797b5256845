"""Progress bars, lines for finished stages, and the table of methods."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from rich.console import Console

from hansfree.cli import terminal
from hansfree.evaluation.results import Row


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


@pytest.mark.parametrize("is_known", [True, False])
def test_uninformative_accuracy_is_marked(capsys: pytest.CaptureFixture[str], is_known: bool) -> None:
    metrics = ["accuracy_clean", "accuracy_biased", *(["balanced_accuracy_biased"] if is_known else [])]
    rows = [
        Row(experiment="run", method="original", split="test", chosen=1, metric=metric, value=0.7, stderr=0.1)
        for metric in metrics
    ]
    terminal.show_methods(rows)
    out = capsys.readouterr().out
    assert "70.0±10.0" in out
    assert ("† too few of these images" in out) != is_known


def test_at_80_columns_a_long_name_folds_and_numbers_are_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.console, "width", 80, raising=False)
    scores = {"accuracy_clean": 91.3, "accuracy_biased": 100, "flip_rate": 12.5, "tcav": 100, "artifact_relevance": 7.5}
    about = {"experiment": "run", "split": "test", "chosen": 1, "stderr": 0.123, "strength": 0.000125}
    names = ("original", "p-clarc-one-sided@svm")
    rows = [
        Row(method=name, metric=metric, value=value / 100, **about)
        for name in names
        for metric, value in scores.items()
    ]
    terminal.show_methods(rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    numbers = ["0.000125", *(f"{value:.1f}±12.3" for value in scores.values())]
    assert [line.split()[-6:] for line in lines if "±12.3" in line] == [numbers, numbers]
    (first,) = (number for number, line in enumerate(lines) if line.startswith("p-clarc"))
    assert lines[first].split()[0] + lines[first + 1].strip() == "p-clarc-one-sided@svm"
