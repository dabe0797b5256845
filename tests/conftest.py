"""Shared fixtures, order of tests, the same hypothesis examples in every run (HYPOTHESIS_PROFILE=search: new ones)."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from torch.fx import _symbolic_trace

from hansfree import cli
from tests.pipeline.user import make_user

Call = Callable[..., tuple[int, str, str]]

settings.register_profile("same", derandomize=True, deadline=None)  # on shared cores, times say nothing
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# The slowest groups come first, so that none begins when the other processes are about to end.
LONGEST = (
    "paper", "cli/test_commands.py", "pipeline/test_api.py", "pipeline/ray", "pipeline/test_chain.py",
    "report", "label", "export", "browser",
    "benchmarks/test_ideas.py", "corrections/test_contract.py", "benchmarks/test_speed.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share costly fixtures in one process: those of a folder with a conftest, or of a file."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(_group(item), len(places)))


def _group(item: pytest.Item) -> str:
    here, folder = Path(__file__).parent, item.path.parent
    has_fixtures = folder != here and (folder / "conftest.py").exists()
    return (folder if has_fixtures else item.path).relative_to(here).as_posix()


def pytest_collection_finish() -> None:
    """Exclude the half million objects of imported modules from later garbage collections."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Undo it: some libraries check for leaks when the process ends."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _forgotten_graphs() -> Iterator[None]:
    """Drop torch.fx's records of wrapped functions: every trace visits all of them, four times as slow after Swin."""
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


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no report: figures take most of a tiny run's time."""
    monkeypatch.setattr("hansfree.api.write_report", lambda out: out / "report.html")


@pytest.fixture(scope="session")
def original_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with images, a model and its weights; read only."""
    return make_user(tmp_path_factory.mktemp("own") / "user")


@pytest.fixture
def user(original_user: Path, tmp_path: Path) -> Path:
    """Return a copy for one test; files keep their times, which identify images."""
    return Path(shutil.copytree(original_user, tmp_path / "user"))


@pytest.fixture(scope="session")
def published() -> Mapping[str, np.ndarray]:
    """Return inputs and outputs of the authors' published functions; HANSFREE_PUBLISHED may name their archive."""
    beside = Path(__file__).parents[2] / "shared" / "golden" / "published.npz"  # beside the repository
    path = Path(os.environ.get("HANSFREE_PUBLISHED", beside))
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}
