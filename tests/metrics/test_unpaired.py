"""Evidence on a bias that is in the scenes: the biased images are others than the clean ones, with their own labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import Evidence, Metric, compute_scores
from tests.metrics.examples import draw_evidence, one_hot, plain_evidence

INSERTION = ("flip_rate", "probability_change")
CLEAN = [0, 0, 1, 1, 1]
BIASED = [1, 0, 0]


def unpaired(clean: list[int], biased: list[int]) -> Evidence:
    """Return evidence of 2 classes with these answers."""
    return plain_evidence(CLEAN, one_hot(clean, 2), one_hot(biased, 2), labels_biased=np.array(BIASED))


def test_each_condition_is_scored_by_its_own_labels() -> None:
    evidence = unpaired([0, 1, 1, 1, 0], [0, 0, 0])
    assert not evidence.is_paired
    assert evidence.labels_of("clean").tolist() == CLEAN
    assert evidence.labels_of("biased").tolist() == BIASED
    assert evidence.is_correct("biased").tolist() == [False, True, True]
    scores = {score.metric: score for score in compute_scores(evidence)}
    assert (scores["accuracy_clean"].value, scores["accuracy_clean"].n) == (pytest.approx(3 / 5), 5)
    assert (scores["accuracy_biased"].value, scores["accuracy_biased"].n) == (pytest.approx(2 / 3), 3)
    assert scores["balanced_accuracy_clean"].value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert scores["balanced_accuracy_biased"].value == pytest.approx((1 + 0) / 2)
    assert scores["auroc_biased"].value == pytest.approx(0.5)


def test_what_compares_an_image_with_itself_is_left_out() -> None:
    scores = {score.metric for score in compute_scores(unpaired([0] * 5, [0] * 3))}
    assert not scores & set(INSERTION)
    for name in INSERTION:
        with pytest.raises(UndefinedMetricError, match=f"{name} needs the same images"):
            Metric.named(name)().compute(unpaired([0] * 5, [0] * 3))


def test_as_many_images_as_before_are_not_the_same_images() -> None:
    """Sets that happen to be of one size must not be compared image by image."""
    evidence = draw_evidence(0)
    apart = replace(evidence, labels_biased=evidence.labels)
    paired, other = ({score.metric: score for score in compute_scores(each)} for each in (evidence, apart))
    assert set(paired) - set(other) == set(INSERTION)
    assert all(paired[name] == score for name, score in other.items())


def test_the_worst_group_is_sought_in_both_sets() -> None:
    n = 30
    evidence = plain_evidence(
        [0] * n + [1] * n,
        one_hot([0] * n + [1] * n, 2),
        one_hot([0] * n + [0] * 26 + [1] * 4, 2),
        labels_biased=np.array([0] * n + [1] * n),
    )
    score = Metric.named("accuracy_worst_group")().compute(evidence)
    assert (score.value, score.n, score.group) == (pytest.approx(4 / n), n, "class 1 with artifact")
    few = replace(evidence, logits_biased=evidence.logits_biased[-24:], labels_biased=np.ones(24, dtype=int))
    assert Metric.named("accuracy_worst_group")().compute(few).group == "class 0 without artifact"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1], r"logits_biased of \(2, classes\)"),
        ([0, 1, 2], "Labels run from 0 to 2"),
        ([0, -1, 1], "Labels run from -1"),
        ([0.0, 1.0, 0.0], "labels_biased must be integers"),
        ([[0, 1, 1]], "1 dimension"),
    ],
)
def test_labels_that_do_not_fit_the_biased_images_are_refused(labels: list[object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        plain_evidence(CLEAN, one_hot(CLEAN, 2), one_hot(BIASED, 2), labels_biased=np.array(labels))


def test_without_biased_images_nothing_can_be_scored() -> None:
    with pytest.raises(DataError, match="leave nothing to score"):
        plain_evidence(CLEAN, one_hot(CLEAN, 2), np.zeros((0, 2)), labels_biased=np.zeros(0, dtype=int))
