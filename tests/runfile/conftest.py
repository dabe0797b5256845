"""The small user of `tests.runfile.examples`, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.runfile.examples import make_user


@pytest.fixture(scope="session")
def original_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that nobody may change."""
    return make_user(tmp_path_factory.mktemp("own") / "user")


@pytest.fixture
def user(original_user: Path, tmp_path: Path) -> Path:
    """A folder of one's own; files keep their times, by which images are known."""
    return Path(shutil.copytree(original_user, tmp_path / "user"))
