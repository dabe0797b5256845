"""`hansfree suspects` as a user types it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hansfree import cli
from hansfree.cli import discover as suspects
from tests.pipeline.user import make_user, read_table, write_run, write_table


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user whose table has no artifact column."""
    user = make_user(tmp_path_factory.mktemp("own") / "user")
    rows = [(image, label, split) for image, label, _, split in read_table(user / "labels.csv")]
    write_table(user / "labels.csv", rows, ("image", "label", "split"))
    write_run(user / "run.yaml")
    return user


def test_it_tells_what_is_odd_and_where_it_stands(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hansfree", "suspects", str(bare / "run.yaml"), "--by", "relevance"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "cluster 1: " in out
    assert "brightness: " in out
    assert f"page: {bare / 'run-label' / 'suspects.html'}" in out
    assert suspects.suspects.__doc__


def test_a_wrong_word_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hansfree", "suspects", "nowhere.yaml", "--by", "activation"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "Did you mean 'activations'?" in capsys.readouterr().err
