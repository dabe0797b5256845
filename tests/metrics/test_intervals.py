"""Intervals: as wide as they claim, as scipy has them, and never a certainty."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from scipy import stats

from hansfree.errors import DataError
from hansfree.metrics import difference_interval, share_interval


@pytest.mark.parametrize(
    ("rates", "sizes"),
    [((0.6,), (200,)), ((0.7, 0.5, 0.9), (60, 40, 80)), ((0.98, 0.7, 0.5), (30, 50, 40)), ((0.99,), (40,))],
)
def test_an_interval_of_shares_covers_the_truth(rates: tuple[float, ...], sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    labels, chances = np.repeat(np.arange(len(sizes)), sizes), np.repeat(rates, sizes)
    intervals = [share_interval(rng.random(len(labels)) < chances, labels, seed=0) for _ in range(300)]
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
        low, high = difference_interval(a, b, seed=0)
        covered.append(low <= 0.06 <= high)  # 0.8 - (0.8 * 0.9 + 0.2 * 0.1)
        widths.append(high - low)
    assert 0.91 <= np.mean(covered) <= 0.99
    assert np.mean(widths) < 0.7 * 2 * 1.96 * np.sqrt((0.8 * 0.2 + 0.74 * 0.26) / 200)


def test_as_scipy_has_them() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(150) < 0.7, rng.random(150) < 0.6
    options = {"n_resamples": 4000, "method": "percentile", "random_state": np.random.default_rng(2)}
    shares = stats.bootstrap((a,), np.mean, **options).confidence_interval
    assert share_interval(a, seed=0) == pytest.approx(tuple(shares), abs=0.01)
    each = a.astype(float) - b
    differences = stats.bootstrap((each,), np.mean, **options).confidence_interval
    assert difference_interval(a, b, seed=0) == pytest.approx(tuple(differences), abs=0.015)
    # the mean of two recalls is a statistic of two samples
    labels = np.arange(150) < 30
    recalls = stats.bootstrap(
        (a[labels], a[~labels]), lambda x, y, axis: (x.mean(axis=axis) + y.mean(axis=axis)) / 2, **options
    ).confidence_interval
    assert share_interval(a, labels, seed=0) == pytest.approx(tuple(recalls), abs=0.015)


def test_all_alike_is_no_certainty() -> None:
    n = 100
    wilson = stats.binomtest(n, n).proportion_ci(method="wilson")
    assert share_interval(np.ones(n), seed=0) == pytest.approx((wilson.low, 1.0))
    assert share_interval(np.zeros(n), seed=0) == pytest.approx((0.0, 1 - wilson.low))
    low, high = difference_interval(np.ones(n), np.ones(n), seed=0)
    assert (low, high) == pytest.approx((wilson.low - 1, 1 - wilson.low))
    assert difference_interval(np.ones(n), np.zeros(n), seed=0)[1] == pytest.approx(1.0)
    # one class of two that is all right: as wide as the other class alone, and a little more below
    hits, labels = np.r_[np.ones(n), np.arange(n) % 2], np.repeat([0, 1], n)
    low, high = share_interval(hits, labels, seed=0)
    alone = share_interval(hits[n:], seed=0)
    assert high == pytest.approx(0.5 + alone[1] / 2, abs=0.01)
    assert low < 0.5 + alone[0] / 2


@pytest.mark.parametrize("n_right", [1, 40, 99])
def test_the_share_lies_within(n_right: int) -> None:
    hits = np.arange(100) < n_right
    low, high = share_interval(hits, np.arange(100) % 3, seed=0)
    value = np.mean([hits[np.arange(100) % 3 == k].mean() for k in range(3)])
    assert 0 <= low < value < high <= 1


def test_the_seed_decides_and_the_sign_turns() -> None:
    rng = np.random.default_rng(0)
    a, b, labels = rng.random(80) < 0.7, rng.random(80) < 0.5, rng.integers(0, 3, 80)
    first = difference_interval(a, b, labels, seed=3)
    assert difference_interval(a, b, labels, seed=3) == first
    assert difference_interval(a, b, labels, seed=4) != first
    low, high = difference_interval(a, b, seed=3)
    assert difference_interval(b, a, seed=3) == pytest.approx((-high, -low), abs=0.03)


def test_it_is_quick() -> None:
    rng = np.random.default_rng(0)
    hits, labels = rng.random(1000) < 0.6, rng.integers(0, 8, 1000)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        share_interval(hits, labels, seed=0)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("hits", [[], [[True]]])
def test_no_images_have_no_interval(hits: list[bool]) -> None:
    with pytest.raises(DataError, match="one outcome per image"):
        share_interval(hits, seed=0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="a label per image"):
        share_interval([True, False], [0], seed=0)
    with pytest.raises(DataError, match="the same images twice"):
        difference_interval([True, False], [True], seed=0)
