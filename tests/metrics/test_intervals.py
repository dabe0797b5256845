"""Intervals: as published, as wide as they claim, as scipy has them, and never a certainty."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hansfree.errors import DataError
from hansfree.metrics import (
    balanced_difference_interval,
    balanced_interval,
    difference_interval,
    mcnemar,
    share_interval,
)


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
@settings(max_examples=100, deadline=None)
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


def test_few_images_that_differ_are_no_proof() -> None:
    a, b = pair_up(4, 0, 100)
    low, high = difference_interval(a, b)
    assert low < 0.002
    assert high > 0.09
    assert mcnemar(a, b) == 0.125
    low, high = balanced_difference_interval(a, b, np.arange(100) % 4, seed=0)
    assert low < 0 < 0.08 < high, "one image of each class"


@pytest.mark.parametrize("n", [100, 1000])
def test_one_hit_more_never_makes_it_more_certain(n: int) -> None:
    ends = [share_interval(np.arange(n) < k) for k in range(5)]
    assert all(low[0] < high[0] and low[1] < high[1] for low, high in pairwise(ends))
    for k, end in enumerate(ends):
        wilson = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert end == pytest.approx((wilson.low, wilson.high))


@pytest.mark.parametrize(
    ("rates", "sizes"),
    [((0.6,), (200,)), ((0.7, 0.5, 0.9), (60, 40, 80)), ((0.98, 0.7, 0.5), (30, 50, 40)), ((0.99,), (40,))],
)
def test_an_interval_of_shares_covers_the_truth(rates: tuple[float, ...], sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    labels, chances = np.repeat(np.arange(len(sizes)), sizes), np.repeat(rates, sizes)
    intervals = [balanced_interval(rng.random(len(labels)) < chances, labels, seed=0) for _ in range(300)]
    covered = np.mean([low <= np.mean(rates) <= high for low, high in intervals])
    assert covered >= 0.92
    plain = 2 * 1.96 * np.sqrt(sum(p * (1 - p) / n for p, n in zip(rates, sizes))) / len(rates)
    assert np.mean(np.ptp(intervals, axis=1)) < 1.5 * max(plain, 0.08), "a wide interval covers everything"


def test_an_interval_of_differences_covers_the_truth_and_is_narrower_than_of_two_samples() -> None:
    rng = np.random.default_rng(0)
    covered, widths = [], []
    for _ in range(300):
        a = rng.random(200) < 0.8
        b = a ^ (rng.random(200) < 0.1)
        low, high = difference_interval(a, b)
        covered.append(low <= 0.06 <= high)  # 0.8 - (0.8 * 0.9 + 0.2 * 0.1)
        widths.append(high - low)
    assert 0.91 <= np.mean(covered) <= 0.99
    assert np.mean(widths) < 0.7 * 2 * 1.96 * np.sqrt((0.8 * 0.2 + 0.74 * 0.26) / 200)


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
    # one class of two that is all right: as wide as the other class alone, and a little more below
    hits, labels = np.r_[np.ones(n), np.arange(n) % 2], np.repeat([0, 1], n)
    low, high = balanced_interval(hits, labels, seed=0)
    alone = share_interval(hits[n:])
    assert high == pytest.approx(0.5 + alone[1] / 2, abs=0.01)
    assert low < 0.5 + alone[0] / 2


def test_of_a_single_class_they_are_the_plain_ones_or_wider() -> None:
    a, b = pair_up(6, 1, 80)
    one = np.zeros(80)
    for plain, balanced in (
        (share_interval(a), balanced_interval(a, one, seed=0)),
        (difference_interval(a, b), balanced_difference_interval(a, b, one, seed=0)),
    ):
        assert balanced[0] <= plain[0] + 1e-12
        assert balanced[1] >= plain[1] - 1e-12


@pytest.mark.parametrize("n_right", [1, 40, 99])
def test_the_share_lies_within(n_right: int) -> None:
    hits = np.arange(100) < n_right
    low, high = balanced_interval(hits, np.arange(100) % 3, seed=0)
    value = np.mean([hits[np.arange(100) % 3 == k].mean() for k in range(3)])
    assert 0 <= low < value < high <= 1


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(0)
    hits, labels = rng.random(3000) < 0.5, np.arange(3000) % 3
    assert balanced_interval(hits, labels, seed=3) == balanced_interval(hits, labels, seed=3)
    ends = {balanced_interval(hits, labels, seed=seed) for seed in range(8)}
    assert len(ends) > 1


@pytest.mark.parametrize("hits", [[], [[True]]])
def test_no_images_have_no_interval(hits: list[bool]) -> None:
    with pytest.raises(DataError, match="one outcome per image"):
        share_interval(hits)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="a label per image"):
        balanced_interval([True, False], [0], seed=0)
    with pytest.raises(DataError, match="the same images twice"):
        difference_interval([True, False], [True])
