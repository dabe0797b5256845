"""What the page is for: a few labels find the artifact, through the same HTTP API that the page's script uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.discovery.label.worlds import label_all, make_world, opened, page, train_weights

LABELS = 120


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_weights(tmp_path_factory.mktemp("weights") / "biased.safetensors", "timestamp")


@pytest.mark.slow
def test_48_of_50_artifacts_among_1000_images_are_found_within_120_labels(weights: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, 1000, weights=weights)
    assert world.has_artifact.sum() == 50
    with opened(world) as session, page(session) as client:
        label_all(client, world.has_artifact, labels=LABELS)
        state = client.get("api/state").json()
        assert state["yes"] + state["no"] == LABELS
        assert state["yes"] >= 48
    text = world.file.read_text().replace("table: labels.csv", f"table: {world.table}")
    world.file.write_text(text)
    train = prepare_run(read_run_file(world.file)).setting.data.train  # the table is ready as it is
    assert (train.has_artifact == world.has_artifact[train.ids]).mean() > 0.99


@pytest.mark.slow
def test_the_set_proposed_among_4000_images_is_right_after_120_labels(weights: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, 4000, weights=weights)
    truth = world.has_artifact
    assert truth.sum() == 200  # more than can be labelled one by one
    with opened(world) as session, page(session) as client:
        label_all(client, truth, labels=LABELS)
        state = client.get("api/state").json()
        assert state["yes"] + state["no"] == LABELS
        proposed = np.zeros(len(truth), dtype=bool)
        proposed[client.get("api/ranking").json()["proposed"]] = True
    hits = (proposed & truth).sum()
    assert hits >= 0.95 * proposed.sum()
    assert hits >= 0.95 * truth.sum()
