from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.errors import DataError
from hansfree.metrics import NO_PREDICTION, holm, lost_classes, mcnemar, paired_balanced_difference, paired_difference

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@settings(deadline=None)  # shared cores
@given(pairs)
def test_paired_difference_is_the_mean_difference_with_its_plug_in_error(outcomes: list[tuple[bool, bool]]) -> None:
    a, b = np.array(outcomes).T
    difference, stderr = paired_difference(a, b)
    each = a.astype(float) - b.astype(float)
    assert difference == pytest.approx(each.mean())
    assert stderr == pytest.approx(each.std() / np.sqrt(each.size), abs=1e-12)


@settings(deadline=None)  # shared cores
@given(pairs)
def test_swapping_the_models_turns_the_sign_only(outcomes: list[tuple[bool, bool]]) -> None:
    a, b = np.array(outcomes).T
    difference, stderr = paired_difference(a, b)
    assert paired_difference(b, a) == (-difference, stderr)


def test_paired_error_is_the_spread_over_redrawn_images() -> None:
    rng = np.random.default_rng(0)
    differences, errors = [], []
    for _ in range(2000):
        a = rng.random(100) < 0.8
        b = a ^ (rng.random(100) < 0.1)
        difference, stderr = paired_difference(a, b)
        differences.append(difference)
        errors.append(stderr)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(differences), rel=0.15)
    unpaired = np.sqrt(0.8 * 0.2 / 100 + 0.74 * 0.26 / 100)
    assert np.mean(errors) < 0.6 * unpaired


@pytest.mark.parametrize(("a", "b"), [([], []), ([True], [True, False]), ([[True]], [[True]])])
def test_unpaired_input_is_refused(a: list[bool], b: list[bool]) -> None:
    with pytest.raises(DataError, match="the same images twice"):
        paired_difference(a, b)


labelled = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40)


@settings(deadline=None)  # shared cores
@given(labelled)
def test_the_balanced_difference_is_that_of_the_mean_recalls(outcomes: list[tuple[bool, bool, int]]) -> None:
    a, b, labels = (np.array(column) for column in zip(*outcomes))
    difference, stderr = paired_balanced_difference(a, b, labels)
    recalls, variance = [], 0.0
    for label in set(labels.tolist()):
        each = a[labels == label].astype(float) - b[labels == label].astype(float)
        recalls.append(a[labels == label].mean() - b[labels == label].mean())
        variance += each.var() / each.size
    assert difference == pytest.approx(np.mean(recalls))
    assert stderr == pytest.approx(np.sqrt(variance) / len(recalls), abs=1e-12)


def test_a_rare_class_counts_as_much_as_a_frequent_one() -> None:
    labels = np.array([0] * 98 + [1] * 2)
    a, b = np.ones(100, dtype=bool), labels == 0
    assert paired_difference(a, b)[0] == pytest.approx(0.02)
    assert paired_balanced_difference(a, b, labels) == (pytest.approx(0.5), 0.0)


@pytest.mark.parametrize(
    ("a", "b", "labels", "words"),
    [([True], [True], [0, 1], "a label per image"), ([True, False], [True], [0, 1], "twice"), ([], [], [], "twice")],
)
def test_a_balanced_comparison_refuses_what_does_not_fit(
    a: list[bool], b: list[bool], labels: list[int], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        paired_balanced_difference(a, b, labels)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (5, 0), (8, 3), (3, 8), (20, 20), (1, 0)])
def test_mcnemar_counts_the_ways(only_a: int, only_b: int) -> None:
    """Two-sided and exact: the share of all ways to toss so many coins that are as uneven, or more."""
    a = np.repeat([True, False, True, False], (only_a, only_b, 30, 4))
    b = np.repeat([False, True, True, False], (only_a, only_b, 30, 4))
    n = only_a + only_b
    ways = sum(math.comb(n, k) for k in range(n + 1) if abs(k - n / 2) >= abs(only_a - n / 2))
    assert mcnemar(a, b) == pytest.approx(ways / 2**n)


def test_mcnemar_is_as_rare_as_it_says_for_equal_models() -> None:
    rng = np.random.default_rng(0)
    found = [mcnemar(rng.random(200) < 0.7, rng.random(200) < 0.7) for _ in range(400)]
    assert np.mean(np.array(found) <= 0.05) <= 0.06
    assert mcnemar(rng.random(200) < 0.9, rng.random(200) < 0.6) < 1e-4


def test_lost_classes() -> None:
    before = np.array([0, 1, 2, 2, NO_PREDICTION])
    assert lost_classes(before, np.array([0, 0, 0, 3, 0]), 4) == (1, 2)
    assert lost_classes(before, before, 4) == ()
    assert lost_classes(before, np.full(5, NO_PREDICTION), 4) == (0, 1, 2)
    assert lost_classes(np.array([0, 0]), np.array([1, 1]), 4) == (0,)


@pytest.mark.parametrize("wrong", [4, -2])
def test_lost_classes_refuses_what_is_no_class(wrong: int) -> None:
    with pytest.raises(DataError, match="classes 0 to 3"):
        lost_classes(np.array([0]), np.array([wrong]), 4)


@pytest.mark.parametrize(
    ("given", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.04, 0.01, 0.03], [0.06, 0.03, 0.06]),  # 0.01 x 3, 0.03 x 2, and 0.04 not below that
        ([0.6, 0.5], [1.0, 1.0]),
    ],
)
def test_holm_counts_the_tests(given: list[float], corrected: list[float]) -> None:
    assert holm(given) == pytest.approx(corrected)


def test_holm_finds_something_in_nothing_as_seldom_as_one_test() -> None:
    rng = np.random.default_rng(0)
    found = [min(holm(rng.random(8).tolist())) < 0.05 for _ in range(2000)]
    assert np.mean(found) < 0.065
