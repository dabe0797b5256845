"""What all tests share: a call of the command line, the same examples in every run, who works beside whom, and tidying.

HYPOTHESIS_PROFILE=search looks for new ones.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from torch.fx import _symbolic_trace

from hansfree import cli
from tests.pipeline.user import make_user

Call = Callable[..., tuple[int, str, str]]

settings.register_profile("same", derandomize=True)
settings.register_profile("search")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# The groups that take longest, so that none of them is begun when the other processes are about to end. By seconds of
# processor time; xdist itself would go by the number of tests (--no-loadscope-reorder in the Makefile).
LONGEST = (
    "paper", "cli/test_commands.py", "pipeline/test_api.py", "pipeline/ray", "pipeline/test_chain.py",
    "report", "label", "export", "browser",
    "benchmarks/test_ideas.py", "corrections/test_contract.py", "benchmarks/test_speed.py",
    "pipeline/test_experiment.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that share what is costly to make go to one process: those of a folder with fixtures, or of a file."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(_group(item), len(places)))


def _group(item: pytest.Item) -> str:
    here, folder = Path(__file__).parent, item.path.parent
    has_fixtures = folder != here and (folder / "conftest.py").exists()
    return (folder if has_fixtures else item.path).relative_to(here).as_posix()


def pytest_collection_finish() -> None:
    """Leave out of every later garbage collection what was imported until now: half a million objects that stay."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let libraries find all of it again when the process ends: some complain of what is left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _forgotten_graphs() -> Iterator[None]:
    """Drop what torch.fx keeps of every graph with a leaf function, for ever, and goes through in every trace.

    After the tests of Swin, each test that cuts a model took four times as long. Modules have a name; graphs have none.
    """
    yield
    kept = getattr(_symbolic_trace, "_wrapped_fns_to_patch", {})
    for key in [key for key, names in kept.items() if "__name__" not in names]:
        del kept[key]


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


@pytest.fixture(scope="session")
def original_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with images, a model and its weights; read only."""
    return make_user(tmp_path_factory.mktemp("own") / "user")


@pytest.fixture
def user(original_user: Path, tmp_path: Path) -> Path:
    """Return a copy for one test; files keep their times, which identify images."""
    return Path(shutil.copytree(original_user, tmp_path / "user"))
