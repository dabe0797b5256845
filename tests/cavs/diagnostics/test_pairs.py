"""The doctor on pairs: what both halves of a pair share is no noise in the direction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.cavs import PairCAV
from hansfree.cavs.base import samples_of_pairs
from hansfree.cavs.diagnostics import examine_cav
from hansfree.cavs.diagnostics.resampling import assign_folds, bootstrap_draw, disjoint_draws, shuffle_bits
from hansfree.errors import DataError

N, CHANNELS = 60, 30


def pairs(*, size: float, spread: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Images that differ by ``spread``, and the same ones moved by ``size`` along the first channel with ``noise``."""
    rng = np.random.default_rng(0)
    clean = spread * rng.normal(size=(N, CHANNELS))
    return clean, clean + noise * rng.normal(size=(N, CHANNELS)) + size * np.eye(CHANNELS)[0]


def test_the_expected_error_is_that_of_the_mean_change() -> None:
    clean, biased = pairs(size=3.0, spread=4.0, noise=1.0)
    direction = PairCAV(count=1).fit_pairs(clean, biased).direction_
    true_angle = np.degrees(np.arccos(direction[0]))
    samples, bits = samples_of_pairs(clean, biased)
    found = examine_cav(samples, bits, cav="pair", paired=True)
    assert found.finding("expected_error").value == pytest.approx(true_angle, rel=0.2)
    assert found.verdict.startswith(f"{N} pairs of the same image without and with the artifact are few")
    single = examine_cav(samples, bits, cav="pair")
    value = single.finding("expected_error").value
    assert value is not None
    assert value > 2 * true_angle  # the spread between images, which no pair has


def test_changes_that_cancel_show_no_artifact() -> None:
    samples, bits = samples_of_pairs(*pairs(size=0.0, spread=4.0, noise=1.0))
    found = examine_cav(samples, bits, cav="pair", paired=True)
    p = found.finding("permutation_p").value
    assert p is not None
    assert p > 0.05
    assert found.level == "poor"


def test_the_class_is_that_of_its_own_samples() -> None:
    """The other class lies along the artifact's direction; pairs of both are given."""
    clean, biased = pairs(size=3.0, spread=0.5, noise=0.5)
    of_class = np.arange(N) % 2 == 0
    shift = -6.0 * np.outer(~of_class, np.eye(CHANNELS)[0])
    samples, bits = samples_of_pairs(clean + shift, biased + shift)
    found = examine_cav(
        samples, bits, cav="pair", paired=True, in_class=np.tile(of_class, 2), others=(clean + shift)[~of_class]
    )
    overlap = found.finding("class_overlap")
    assert overlap.value == pytest.approx(1.0, abs=0.1)
    assert overlap.level == "poor"
    assert found.wrong_marks == ()


def test_samples_that_are_no_pairs_are_refused() -> None:
    samples, bits = samples_of_pairs(*pairs(size=3.0, spread=1.0, noise=1.0))
    with pytest.raises(DataError, match="all clean samples and then"):
        examine_cav(samples, ~bits, cav="pair", paired=True)
    with pytest.raises(DataError, match="one class bit per sample"):
        examine_cav(samples, bits, cav="pair", paired=True, in_class=bits[:3])


@given(st.integers(4, 30), st.integers(0, 1000))
def test_whole_pairs_are_drawn(n: int, seed: int) -> None:
    rng, bits = np.random.default_rng(seed), np.arange(2 * n) >= n
    shuffled = shuffle_bits(bits, rng, paired=True)
    np.testing.assert_array_equal(shuffled[:n], ~shuffled[n:])
    first, second = disjoint_draws(shuffled, n // 2, rng, paired=True)
    assert not np.any(first * second)
    assert first.sum() == second.sum() == 2 * (n // 2)
    redrawn = bootstrap_draw(bits, rng, paired=True)
    assert redrawn.sum() == 2 * n
    fold_of = assign_folds(bits, 4, rng, paired=True)
    assert len(np.unique(fold_of)) == 4
    for drawn in (first, second, redrawn, fold_of):
        np.testing.assert_array_equal(drawn[:n], drawn[n:])
