from __future__ import annotations

import math

import numpy as np
import pytest

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import MIN_GROUP, AccuracyWorstGroup, chance_level, majority_rate
from tests.metrics.examples import one_hot, plain_evidence


def test_worst_group_is_named_and_small_groups_do_not_count() -> None:
    labels = [0] * 40 + [1] * MIN_GROUP + [2] * (MIN_GROUP - 1)
    clean = [0] * 40 + [1] * 20 + [0] * 5 + [0] * 24  # class 2 is always wrong, but too small to be known
    biased = [0] * 40 + [1] * 10 + [0] * 15 + [0] * 24
    score = AccuracyWorstGroup().compute(plain_evidence(labels, one_hot(clean, 3), one_hot(biased, 3)))
    assert score.value == 10 / 25
    assert score.stderr == pytest.approx(math.sqrt(0.4 * 0.6 / 25))
    assert score.n == 25
    assert score.group == "class 1 with artifact"


def test_worst_group_can_be_without_artifact() -> None:
    labels = [0] * 25 + [1] * 25
    clean, biased = [0] * 25 + [0] * 25, [0] * 25 + [1] * 25
    score = AccuracyWorstGroup().compute(plain_evidence(labels, one_hot(clean, 2), one_hot(biased, 2)))
    assert (score.value, score.group) == (0.0, "class 1 without artifact")


def test_only_small_groups_leave_it_undefined() -> None:
    labels = [0] * 24 + [1] * 24
    with pytest.raises(UndefinedMetricError, match="at least 25 images; the largest has 24"):
        AccuracyWorstGroup().compute(plain_evidence(labels, one_hot(labels, 2), one_hot(labels, 2)))


def test_majority_rate() -> None:
    assert majority_rate(np.array([3, 0, 3, 3])) == 0.75
    with pytest.raises(DataError, match="at least 1 label"):
        majority_rate(np.array([], dtype=int))


def test_chance_is_that_of_the_classes_present() -> None:
    """A test set of two classes out of four: a constant answer is right for one of the two, or for none."""
    labels = np.array([0] * 10 + [3] * 90)
    assert chance_level(labels) == 0.5
    with pytest.raises(DataError, match="at least 1 label"):
        chance_level(labels[:0])
