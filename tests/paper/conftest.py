"""One work folder for all tests of this room: what one experiment did, the next one finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hansfree.paper.aggregate import Finding
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.runner import Reproduction
from tests.pipeline.studies import opened

Examine = Callable[..., Finding]


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="session")
def examine(work: Path) -> Examine:
    """Do an experiment on one subject."""

    def inside(name: str, study: BenchmarkDataset, **options: object) -> Finding:
        with opened(work, study, **options) as subject:
            return Reproduction.named(name)().examine(subject)

    return inside
