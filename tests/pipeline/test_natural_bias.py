"""An artifact that is in the scenes, end to end: nobody can insert it, and nobody knows where it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from hansfree.cavs import CAV
from hansfree.corrections import RRR, LatentCorrection
from hansfree.data.datasets import WithMasks
from hansfree.evaluation.results import Row
from hansfree.metrics import Metric
from hansfree.paper.subjects import Subject
from tests.pipeline.studies import Natural, difference_of, opened, rows_like, value_of

INSERTION = {"flip_rate", "probability_change"}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with opened(tmp_path_factory.mktemp("work"), Natural(), repeats=2) as subject:
        yield subject


@pytest.fixture(scope="module")
def rows(subject: Subject) -> list[Row]:
    return subject.experiment.rows()


def test_what_needs_pairs_of_images_is_left_out_and_nothing_else(rows: list[Row]) -> None:
    metrics = {row.metric for row in rows}
    assert not metrics & INSERTION
    assert metrics == {*Metric.members(), "cav_auc"} - INSERTION
    assert {row.metric for row in rows if row.method.startswith("cav:")} == {"cav_auc"}
    assert {row.method for row in rows} == {
        "original",
        *LatentCorrection.defaults(),
        *(f"cav:{name}" for name in CAV.from_marks()),
    }


def test_every_score_counts_the_images_of_its_own_set(rows: list[Row], subject: Subject) -> None:
    data = subject.data
    for row in rows_like(rows, split="test", group=None):  # not of one class alone
        if row.metric.endswith("_clean"):
            assert row.n == len(data.test_clean), row
        elif row.metric.endswith("_biased") or row.metric.startswith("tcav"):
            assert row.n == len(data.test_biased), row
        elif row.metric == "cav_auc":
            assert row.n == len(data.test_clean) + len(data.test_biased)


def test_biased_accuracy_is_that_of_the_biased_images(rows: list[Row], subject: Subject) -> None:
    model, images = subject.experiment.setting.model, subject.data.test_biased
    with torch.no_grad():
        answers = [int(model(images[row].image[None]).argmax()) for row in range(len(images))]
    expected = np.mean(np.array(answers) == images.labels)
    assert value_of(rows, "original", "accuracy_biased") == pytest.approx(expected)


def test_rrr_is_trained_with_masks_of_the_cav_and_not_scored_by_such(
    rows: list[Row], subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = {row.method for row in rows_like(rows, metric="artifact_relevance")}
    assert scored == {"original", "vanilla"}, "RRR knows these masks, and the others the CAV that they come from"
    images = subject.experiment.workspace.masked_train
    assert isinstance(images, WithMasks)
    train = subject.data.train
    for index in range(0, len(train), 7):
        image, mask = images.pixels(index)
        assert np.array_equal(image, train.pixels(index)[0])
        assert mask.any() == train.has_artifact[index]
        assert not train.pixels(index)[1].any(), "nobody knows where it is"
    used: list[object] = []
    monkeypatch.setattr(RRR, "__init__", lambda self, images, **_: used.append(images))
    subject.experiment._method(subject.experiment.plain("rrr"), 0)
    assert used == [images]


def test_methods_are_compared_image_by_image(rows: list[Row], subject: Subject) -> None:
    found = difference_of(subject.experiment, "a-clarc", "vanilla", "accuracy_biased")
    expected = value_of(rows, "a-clarc", "accuracy_biased") - value_of(rows, "vanilla", "accuracy_biased")
    assert found.value == pytest.approx(expected)
    assert found.stderr >= 0
