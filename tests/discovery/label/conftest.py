"""A small world for tests that need no good ranking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from hansfree.discovery.label.session import Session
from tests.discovery.label.worlds import World, make_world, opened, page


@pytest.fixture(scope="session")
def small_template(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return forty images, two with the artifact, and an untrained model."""
    return make_world(tmp_path_factory.mktemp("label"), 40, size=32)


@pytest.fixture(scope="session")
def unlabelled(small_template: World) -> Iterator[Session]:
    """Return a session in which nothing is labelled."""
    with opened(small_template) as session:
        yield session


@pytest.fixture(scope="session")
def visitor(unlabelled: Session) -> Iterator[TestClient]:
    with page(unlabelled) as client:
        yield client


@pytest.fixture
def small(small_template: World, tmp_path: Path) -> World:
    """Return the same images with a run file and labels of its own."""
    text = small_template.file.read_text().replace("out: out", f"out: {tmp_path / 'out'}")
    folder = small_template.file.parent
    for key, name in (("root", "pictures"), ("table", "labels.csv")):
        text = text.replace(f"{key}: {name}", f"{key}: {folder / name}")
    (tmp_path / "run.yaml").write_text(text)
    return World(tmp_path / "run.yaml", small_template.has_artifact)


@pytest.fixture
def session(small: World) -> Iterator[Session]:
    with opened(small) as session:
        yield session


@pytest.fixture
def client(session: Session) -> Iterator[TestClient]:
    with page(session) as client:
        yield client
