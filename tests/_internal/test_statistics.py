"""Intervals: as published, as wide as they claim, as scipy has them, and never a certainty."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hansfree._internal.statistics import (
    auc,
    balanced_difference_interval,
    balanced_interval,
    difference_interval,
    share_interval,
)
from hansfree.errors import DataError
from hansfree.metrics import holm, mcnemar, paired_balanced_difference, paired_difference


def pair_up(only_a: int, only_b: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the outcomes of two models that differ on so many of ``n`` images."""
    rows = np.arange(n)
    return rows < only_a, (rows >= only_a) & (rows < only_a + only_b)


@pytest.mark.parametrize(
    ("only_a", "only_b", "n", "published"),
    [
        (1, 7, 21, (-0.517, -0.026)),  # airway reactivity, in Fagerland, Lydersen and Laake (2014)
        (16, 8, 86, (-0.020, 0.207)),  # crossover trial, in Agresti and Min (2005)
    ],
)
def test_tangos_interval_is_as_published(only_a: int, only_b: int, n: int, published: tuple[float, float]) -> None:
    assert difference_interval(*pair_up(only_a, only_b, n)) == pytest.approx(published, abs=0.0005)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60))
@settings(max_examples=100)
def test_a_difference_leaves_out_zero_where_the_score_test_says_so(only_a: int, only_b: int, rest: int) -> None:
    """At zero, Tango's test is McNemar's; and the interval turns with the sign."""
    n = only_a + only_b + rest
    if n == 0:
        return
    low, high = difference_interval(*pair_up(only_a, only_b, n))
    z = (only_a - only_b) / np.sqrt(max(only_a + only_b, 1))
    assert (low > 0 or high < 0) == (abs(z) > stats.norm.ppf(0.975))
    assert -1 <= low <= (only_a - only_b) / n <= high <= 1
    assert difference_interval(*pair_up(only_b, only_a, n)) == pytest.approx((-high, -low))


@pytest.mark.parametrize(
    ("rates", "sizes"), [((0.7, 0.5, 0.9), (60, 40, 80)), ((0.98, 0.7, 0.5), (30, 50, 40)), ((0.99,), (40,))]
)
def test_an_interval_of_shares_covers_the_truth(rates: tuple[float, ...], sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    labels, chances = np.repeat(np.arange(len(sizes)), sizes), np.repeat(rates, sizes)
    intervals = [balanced_interval(rng.random(len(labels)) < chances, labels, seed=0) for _ in range(200)]
    covered = np.mean([low <= np.mean(rates) <= high for low, high in intervals])
    assert covered >= 0.92
    plain = 2 * 1.96 * np.sqrt(sum(p * (1 - p) / n for p, n in zip(rates, sizes))) / len(rates)
    assert np.mean(np.ptp(intervals, axis=1)) < 1.5 * max(plain, 0.08), "a wide interval covers everything"


def test_a_mean_over_classes_is_as_scipy_has_it() -> None:
    rng = np.random.default_rng(1)
    a, b, labels = rng.random(300) < 0.7, rng.random(300) < 0.6, np.arange(300) < 100
    options = {"n_resamples": 4000, "method": "percentile", "random_state": np.random.default_rng(2)}

    def mean(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return (x.mean(axis=axis) + y.mean(axis=axis)) / 2

    recalls = stats.bootstrap((a[labels], a[~labels]), mean, **options).confidence_interval
    assert balanced_interval(a, labels, seed=0) == pytest.approx(tuple(recalls), abs=0.015)
    each = a.astype(float) - b
    differences = stats.bootstrap((each[labels], each[~labels]), mean, **options).confidence_interval
    assert balanced_difference_interval(a, b, labels, seed=0) == pytest.approx(tuple(differences), abs=0.015)


def test_all_alike_is_no_certainty() -> None:
    n = 100
    wilson = stats.binomtest(n, n).proportion_ci(method="wilson")
    assert share_interval(np.ones(n)) == pytest.approx((wilson.low, 1.0))
    assert difference_interval(np.ones(n), np.ones(n)) == pytest.approx((wilson.low - 1, 1 - wilson.low))
    assert difference_interval(np.ones(n), np.zeros(n))[1] == pytest.approx(1.0)


def slow_auc(scores: np.ndarray, bits: np.ndarray) -> tuple[float, float]:
    """Return the AUC and its standard error (DeLong et al., 1988), pair by pair."""
    wins = np.array([[(one > other) + (one == other) / 2 for other in scores[~bits]] for one in scores[bits]])
    sides = (wins.mean(axis=1), wins.mean(axis=0))
    return float(wins.mean()), math.sqrt(sum(side.var(ddof=1) / len(side) for side in sides if len(side) > 1))


@given(scores=st.lists(st.integers(-3, 3), min_size=2, max_size=20).map(np.array), seed=st.integers(0, 9))
def test_auc_counts_pairs_halves_ties_and_has_delongs_error(scores: np.ndarray, seed: int) -> None:
    bits = np.random.default_rng(seed).permutation(len(scores)) < max(1, len(scores) // 2)
    found = auc(scores, bits)
    assert (found.value, found.stderr) == pytest.approx(slow_auc(scores, bits))


def test_auc_within_folds_never_compares_across_them() -> None:
    rng = np.random.default_rng(1)
    scores, bits, fold_of = rng.normal(size=60), np.arange(60) % 3 == 0, np.arange(60) % 5
    expected = np.mean([slow_auc(scores[fold_of == f], bits[fold_of == f])[0] for f in range(5)])  # folds alike in size
    found, apart = (auc(scores + shift * fold_of, bits, groups=fold_of) for shift in (0, 100))
    assert found.value == pytest.approx(expected)
    assert (apart.value, apart.stderr) == pytest.approx((found.value, found.stderr))


labelled = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40)


@given(labelled)
def test_the_balanced_difference_is_that_of_the_mean_recalls(outcomes: list[tuple[bool, bool, int]]) -> None:
    a, b, labels = (np.array(column) for column in zip(*outcomes))
    each = a.astype(float) - b
    assert paired_difference(a, b) == pytest.approx((each.mean(), each.std() / np.sqrt(each.size)), abs=1e-12)
    difference, stderr = paired_balanced_difference(a, b, labels)
    recalls, variance = [], 0.0
    for label in set(labels.tolist()):
        each = a[labels == label].astype(float) - b[labels == label].astype(float)
        recalls.append(a[labels == label].mean() - b[labels == label].mean())
        variance += each.var() / each.size
    assert difference == pytest.approx(np.mean(recalls))
    assert stderr == pytest.approx(np.sqrt(variance) / len(recalls), abs=1e-12)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (5, 0), (8, 3), (3, 8), (20, 20), (1, 0)])
def test_mcnemar_counts_the_ways(only_a: int, only_b: int) -> None:
    """Two-sided and exact: the share of all ways to toss so many coins that are as uneven, or more."""
    a = np.repeat([True, False, True, False], (only_a, only_b, 30, 4))
    b = np.repeat([False, True, True, False], (only_a, only_b, 30, 4))
    n = only_a + only_b
    ways = sum(math.comb(n, k) for k in range(n + 1) if abs(k - n / 2) >= abs(only_a - n / 2))
    assert mcnemar(a, b) == pytest.approx(ways / 2**n)


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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: share_interval([]), "one outcome per image"),
        (lambda: balanced_interval([True, False], [0], seed=0), "a label per image"),
        (lambda: difference_interval([True, False], [True]), "the same images twice"),
        (lambda: paired_difference([[True]], [[True]]), "the same images twice"),
        (lambda: paired_balanced_difference([True], [True], [0, 1]), "a label per image"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        call()
