"""Repeated fits against the CAV's own, and draws that keep their promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from hansfree.cavs import CAV, SignalCAV
from hansfree.cavs.diagnostics.resampling import (
    HeldOut,
    angle_to_truth,
    assign_folds,
    bootstrap_draw,
    disjoint_draws,
    held_out_scores,
    images_for,
    in_deviations,
    make_refit,
    of_both_halves,
)
from tests.cavs.samples import gaussian


@pytest.mark.parametrize("name", CAV.members())
def test_a_refit_on_all_samples_is_the_fit(name: str) -> None:
    X, bits, _ = gaussian(20, 30, 5, size=3.0)
    X = X - X.mean(axis=0)
    cav = CAV.named(name)().fit(X, bits)
    (direction,) = make_refit(cav, X)(bits[None], np.ones((1, 50), dtype=int))
    np.testing.assert_allclose(direction, cav.direction_, atol=2e-3)


@pytest.mark.parametrize("name", ["signal", "ridge"])
def test_samples_without_a_difference_give_no_direction(name: str) -> None:
    X, bits, _ = gaussian(6, 8, 3, size=3.0)
    cav = CAV.named(name)().fit(X, bits)
    counts = np.zeros((1, 14), dtype=int)
    counts[0, [np.flatnonzero(bits)[0], np.flatnonzero(~bits)[0]]] = 1
    same = X.copy()
    same[counts[0] > 0] = 1.0
    np.testing.assert_array_equal(make_refit(cav, same)(bits[None], counts), np.zeros((1, 3)))


@given(st.integers(4, 30), st.integers(4, 30), st.integers(0, 1000))
def test_draws_keep_to_the_classes(n_artifact: int, n_clean: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.permutation(np.arange(n_artifact + n_clean) < n_artifact)
    redrawn = bootstrap_draw(bits, rng)
    assert redrawn[bits].sum() == n_artifact
    assert redrawn[~bits].sum() == n_clean
    first, second = disjoint_draws(bits, n_artifact // 2, rng)
    assert not np.any(first * second)
    assert first[bits].sum() == second[bits].sum() == n_artifact // 2
    assert first[~bits].sum() == second[~bits].sum() >= 1
    fold_of = assign_folds(bits, 4, rng)
    for kind in (bits, ~bits):
        sizes = np.bincount(fold_of[kind], minlength=4)
        assert sizes.max() - sizes.min() <= 1
        assert sizes.min() >= 1


@given(st.floats(0.01, 0.999))
def test_all_samples_have_half_the_squared_tangent_of_halves(cosine: float) -> None:
    half, whole = (np.tan(np.radians(angle_to_truth(r))) ** 2 for r in (cosine, of_both_halves(cosine)))
    assert half == pytest.approx(2 * whole)


def test_the_rarer_kind_grows_alone_up_to_the_other() -> None:
    assert images_for(10.0, fewer=50, more=80, angle=10.0) == pytest.approx(50)
    assert images_for(1.0, fewer=50, more=50, angle=2.0) == pytest.approx(200, rel=0.01)
    assert images_for(10.0, fewer=50, more=80, angle=90.0) is None
    need, both = (images_for(10.0, fewer=15, more=81, angle=angle) for angle in (15.0, 40.0))
    assert need is not None
    assert both is not None
    assert 15 < need < 81 < both
    ratio = np.tan(np.radians(15.0)) ** 2 / np.tan(np.radians(10.0)) ** 2
    assert ratio * (1 / need + 1 / 81) == pytest.approx(1 / 15 + 1 / 81)


def test_held_out_scores_are_those_of_a_fit_without_the_fold() -> None:
    X, bits, _ = gaussian(10, 15, 4, size=2.0)
    X = X - X.mean(axis=0)
    fold_of = np.arange(25) % 5
    (scores,) = held_out_scores(make_refit(SignalCAV(), X), X, bits[None], fold_of[None])
    for row in range(25):
        rest = fold_of != fold_of[row]
        assert scores[row] == pytest.approx(SignalCAV().fit(X[rest], bits[rest]).direction_ @ X[row])


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
    few, third = np.repeat([0.0, 3.0, 1.0], [3, 1, 4]), np.arange(8) >= 4  # most of each kind have one score
    standard, separation = in_deviations(few, third)
    assert np.isfinite(standard).all()
    assert separation > 0
