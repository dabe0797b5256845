"""What all tests share: a call of the command line, the same examples in every run, and who works beside whom.

HYPOTHESIS_PROFILE=search looks for new ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from hansfree import cli

Call = Callable[..., tuple[int, str, str]]

settings.register_profile("same", derandomize=True)
settings.register_profile("search")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that share what is costly to make go to one process: those of a folder with fixtures, or of a file."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.parent
        has_fixtures = folder != here and (folder / "conftest.py").exists()
        shared = folder if has_fixtures else item.path
        item.add_marker(pytest.mark.xdist_group(str(shared.relative_to(here))))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command line in this process: (exit code, stdout, stderr)."""

    def inside(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hansfree", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return inside
