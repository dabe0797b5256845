"""Directions from pairs: the mean change, the subspace, and how many directions held-out pairs ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hansfree.cavs import SVMCAV, PairCAV, RidgeCAV, SignalCAV
from hansfree.cavs.means import MAX_DIRECTIONS
from hansfree.errors import DataError, OptionError
from tests.cavs.samples import activations


def paper_signal(X, bits):
    """h = sum over (x, t) of (a(x) - a-bar)(t - t-bar), term by term."""
    mean_activation = sum(X) / len(X)
    mean_bit = sum(float(t) for t in bits) / len(bits)
    return sum((a - mean_activation) * (float(t) - mean_bit) for a, t in zip(X, bits))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(4, 40), st.integers(1, 12), st.floats(-50, 50))
def test_direction_is_the_paper_s_equation_and_the_difference_of_means(seed, n, channels, offset):
    X, bits = activations(n, channels, seed=seed, offset=offset)
    cav = SignalCAV().fit(X, bits)
    h = paper_signal(X, bits)
    np.testing.assert_allclose(cav.direction_, h / np.linalg.norm(h), atol=1e-9)
    difference = X[bits].mean(0) - X[~bits].mean(0)
    np.testing.assert_allclose(cav.direction_, difference / np.linalg.norm(difference), atol=1e-9)
    np.testing.assert_allclose(cav.scale_, [np.linalg.norm(difference)])


def test_signal_ignores_a_distractor_that_bends_the_classifiers():
    """The second channel holds only noise, which the first shares: subtracting it separates the classes."""
    rng = np.random.default_rng(0)
    bits = np.arange(1000) % 2 == 0
    distractor = 1.5 * rng.normal(size=1000)
    X = np.stack([bits + distractor, distractor], axis=1) + 0.1 * rng.normal(size=(1000, 2))
    truth = np.array([1.0, 0.0])
    assert SignalCAV().fit(X, bits).direction_ @ truth > 0.95
    assert SVMCAV().fit(X, bits).direction_ @ truth < 0.8
    assert RidgeCAV().fit(X, bits).direction_ @ truth < 0.8


Floats = NDArray[np.float64]


def pairs(
    n: int = 200, channels: int = 12, *, ways: int = 0, noise: float = 0.05, seed: int = 0
) -> tuple[Floats, Floats]:
    """Return activations whose change is 3 along channel 0, and varies by 1 along ``ways`` further channels."""
    rng = np.random.default_rng(seed)
    clean = 5 + 4 * rng.normal(size=(n, channels))
    change = noise * rng.normal(size=(n, channels))
    change[:, 0] += 3
    change[:, 1 : 1 + ways] += rng.normal(size=(n, ways))
    return clean, clean + change


def test_the_mean_change_does_not_depend_on_the_pairing() -> None:
    """On unpaired samples one direction is all there is: the signal-CAV's. A second fit forgets the first."""
    clean, biased = pairs(ways=3)
    X, y = np.concatenate([clean, biased]), np.arange(400) >= 200
    cav = PairCAV().fit_pairs(clean, biased)
    first = cav.direction_
    cav.fit(X, y)
    np.testing.assert_allclose(cav.directions_, SignalCAV().fit_pairs(clean, biased).directions_, atol=1e-12)
    np.testing.assert_allclose(cav.direction_, first, atol=1e-12)
    np.testing.assert_array_equal(cav.size_, cav.scale_)
    assert not hasattr(cav, "explained_")
    with pytest.raises(DataError, match="3 directions need pairs"):
        PairCAV(count=3).fit(X, y)


@pytest.mark.parametrize("ways", [0, 1, 3])
def test_held_out_pairs_tell_how_many_directions_there_are(ways: int) -> None:
    cav = PairCAV().fit_pairs(*pairs(ways=ways))
    assert len(cav.directions_) == 1 + ways
    assert len(cav.explained_) == MAX_DIRECTIONS
    assert np.all(np.diff(cav.explained_) >= 0)
    assert cav.explained_[ways] > 0.98
    # The subspace is the planted one: nothing of it lies in the channels that only noise moves.
    assert np.abs(cav.directions_[:, 1 + ways :]).max() < 0.1


def reference_directions(changes: Floats, count: int) -> Floats:
    """The mean, then singular vectors of what is left of the changes."""
    mean = changes.sum(axis=0)
    first = mean / np.sqrt((mean * mean).sum())
    rest = np.stack([change - (change @ first) * first for change in changes])
    return np.concatenate([first[None], np.linalg.svd(rest, full_matrices=False)[2][: count - 1]])


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), count=st.integers(1, 6), scale=st.floats(1e-3, 1e3))
def test_directions_are_the_references_up_to_sign_and_do_not_change_with_the_unit(
    seed: int, count: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(30, 7))
    changes = rng.normal(size=(30, 7)) * [4, 3, 2.2, 1.6, 1.1, 0.7, 0.4] + 0.5
    cav = PairCAV(count=count).fit_pairs(scale * clean, scale * (clean + changes))
    assert cav.directions_.shape == (count, 7)
    np.testing.assert_allclose(cav.directions_ @ cav.directions_.T, np.eye(count), atol=1e-9)
    overlap = np.abs(np.sum(cav.directions_ * reference_directions(changes, count), axis=1))
    np.testing.assert_allclose(overlap, 1, atol=1e-6)
    along = changes @ cav.directions_.T
    np.testing.assert_allclose(cav.size_, scale * np.sqrt((along**2).mean(axis=0)), rtol=1e-9)
    mean = scale * np.linalg.norm(changes.mean(axis=0))
    np.testing.assert_allclose(cav.scale_, [mean] + [0] * (count - 1), rtol=1e-9)
    assert np.all(np.diff(cav.size_[1:]) <= 1e-9 * scale)


@pytest.mark.parametrize(
    ("clean", "biased", "options", "sentence"),
    [
        (np.ones((4, 3)), np.zeros((5, 3)), {}, r"shapes are \(4, 3\) without and \(5, 3\) with"),
        (np.eye(6), np.eye(6), {}, "changes the activations of none of these 6"),
        (np.eye(4), 2 * np.eye(4), {}, "5 folds, but there are n_samples=4"),
        (np.eye(6), np.eye(6) + 1, {"count": 4}, "have 1 directions, not 4"),
        (np.eye(6), np.full((6, 6), np.nan), {}, "NaN"),
    ],
)
def test_pairs_that_cannot_be_used(clean: Floats, biased: Floats, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        PairCAV(**options).fit_pairs(clean, biased)


@pytest.mark.parametrize("options", [{"count": 0}, {"folds": 1}, {"seed": -1}, {"count": 1.5}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        PairCAV(**options).fit_pairs(*pairs())
