"""AUC, standard error and odds against slow and literal versions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from hansfree.cavs import SignalCAV
from hansfree.cavs.diagnostics.resampling import HeldOut, auc, fold_auc, held_out_scores, in_deviations, make_refit
from tests.cavs.diagnostics.samples import gaussian


def literal_auc(scores: np.ndarray, bits: np.ndarray) -> float:
    pairs = [(one > other) + (one == other) / 2 for one in scores[bits] for other in scores[~bits]]
    return float(np.mean(pairs))


def test_auc_counts_pairs_and_halves_ties() -> None:
    rng = np.random.default_rng(0)
    scores, bits = rng.integers(0, 5, size=40).astype(float), rng.random(40) < 0.4
    assert auc(scores, bits) == pytest.approx(literal_auc(scores, bits))


def test_auc_within_folds_never_compares_across_them() -> None:
    rng = np.random.default_rng(1)
    scores, bits, fold_of = rng.normal(size=60), np.arange(60) % 3 == 0, np.arange(60) % 5
    expected = np.mean([literal_auc(scores[fold_of == f], bits[fold_of == f]) for f in range(5)])  # folds alike in size
    value, stderr = fold_auc(scores, bits, fold_of)
    assert value == pytest.approx(expected)
    assert fold_auc(scores + 100 * fold_of, bits, fold_of) == pytest.approx((value, stderr))


def test_the_standard_error_is_the_spread_over_samples() -> None:
    values, errors = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        bits = np.arange(100) < 40
        value, stderr = fold_auc(rng.normal(size=100) + bits, bits, np.zeros(100, dtype=int))
        values.append(value)
        errors.append(stderr)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_held_out_scores_are_those_of_a_fit_without_the_fold() -> None:
    X, bits, _ = gaussian(10, 15, 4, size=2.0)
    X = X - X.mean(axis=0)
    fold_of = np.arange(25) % 5
    (scores,) = held_out_scores(make_refit(SignalCAV(), X), X, bits[None], fold_of[None])
    for row in range(25):
        kept = fold_of != fold_of[row]
        assert scores[row] == pytest.approx(SignalCAV().fit(X[kept], bits[kept]).direction_ @ X[row])


def test_odds_are_those_of_two_normal_curves() -> None:
    scores, bits = np.array([-1.0, 0.0, 0.5, 2.0]), np.array([True, True, False, False])
    held_out = HeldOut(scores, auc=1.0, stderr=0.0, separation=3.0)
    toward_artifact = norm.pdf(scores, 1.5) / norm.pdf(scores, -1.5)
    np.testing.assert_allclose(held_out.odds(bits), np.where(bits, 1 / toward_artifact, toward_artifact))


def test_the_yardstick_is_not_moved_by_outliers() -> None:
    rng = np.random.default_rng(2)
    bits = np.arange(2000) < 1000
    scores = 5 * (rng.normal(size=2000) + 4 * bits)
    scores[:50] = -1000.0
    standard, separation = in_deviations(scores, bits)
    assert separation == pytest.approx(4, abs=0.3)
    assert np.median(standard[bits]) == pytest.approx(separation / 2, abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_equal_scores_have_a_yardstick_too(noise: float) -> None:
    bits = np.arange(10) < 5
    scores = bits * 2.0
    scores[[0, 9]] += noise
    standard, separation = in_deviations(scores, bits)
    assert np.all(np.isfinite(standard))
    assert separation > 0
