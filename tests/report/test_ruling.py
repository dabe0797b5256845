"""The rule of the verdict as a table of cases; and what more images, or fewer, may do to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hansfree.metrics import balanced_difference_interval, difference_interval, mcnemar
from hansfree.report.ruling import MARGIN, Ruling, Seen, describe_rule, rule_on

GOOD: dict[str, Any] = {
    "flips": (0.57, 0.15),
    "flips_change": (-0.46, -0.38),
    "flips_p": 0.001,
    "biased_change": (0.10, 0.16),
}
LITTLE: dict[str, Any] = GOOD | {"flips": (0.57, 0.40), "flips_change": (-0.20, -0.14)}
NATURAL: dict[str, Any] = {"biased_change": (0.10, 0.16)}
RANKS: tuple[Ruling, ...] = ("not corrected", "partly corrected", "corrected", "as a clean-trained model")


@pytest.mark.parametrize(
    ("seen", "ruling"),
    [
        (GOOD, "corrected"),
        (GOOD | {"is_usable": False}, "do not use"),
        (GOOD | {"flips_beyond_clean": (-0.02, 0.05)}, "as a clean-trained model"),
        (GOOD | {"flips_beyond_clean": (-0.02, 0.051)}, "corrected"),  # more may be left than the margin
        (GOOD | {"flips_beyond_clean": (-0.30, 0.30)}, "corrected"),  # so few images show nothing
        (GOOD | {"flips_beyond_clean": (0.01, 0.03)}, "as a clean-trained model"),  # worse, and by little
        (GOOD | {"flips": (0.57, 0.285)}, "corrected"),
        (GOOD | {"flips": (0.57, 0.29)}, "partly corrected"),
        (LITTLE, "partly corrected"),
        (LITTLE | {"flips_beyond_clean": (-0.02, 0.01)}, "partly corrected"),  # both flip far too often
        (LITTLE | {"flips_beyond_clean": (-0.02, 0.01), "is_usable": False}, "do not use"),
        (GOOD | {"biased_change": (-0.01, 0.05)}, "partly corrected"),
        (GOOD | {"biased_change": (-0.05, -0.01)}, "not corrected"),  # answers that stay the same, and wrong
        (GOOD | {"flips_change": (-0.02, 0.01)}, "partly corrected"),
        (GOOD | {"flips_change": (0.01, 0.03)}, "not corrected"),
        (GOOD | {"flips_p": 0.051}, "partly corrected"),  # the interval alone is not enough
        (GOOD | {"flips_p": 0.125, "biased_change": (-0.01, 0.05)}, "not corrected"),
        (GOOD | {"flips_change": (-0.02, 0.01), "biased_change": (-0.01, 0.05)}, "not corrected"),
        (GOOD | {"flips_change": (0.0, 0.0), "biased_change": (0.0, 0.0)}, "not corrected"),
        # in the scenes: how much is left, nobody can measure
        (NATURAL, "partly corrected"),
        (NATURAL | {"biased_change": (-0.01, 0.16)}, "not corrected"),
        (NATURAL | {"biased_change": (-0.16, -0.01)}, "not corrected"),
        ({}, "cannot be known"),
        ({"is_usable": False}, "do not use"),
    ],
)
def test_the_rule(seen: dict[str, Any], ruling: Ruling) -> None:
    assert rule_on(Seen(**seen)) == ruling


def test_the_words_are_of_what_can_be_applied() -> None:
    rule = describe_rule(Seen(**GOOD), budget=0.02)
    assert "at most half as many decisions" in rule
    assert "McNemar test must agree: p below 0.05)" in rule
    assert "loses at most 2 points" in rule
    assert "clean-trained" not in rule
    known = describe_rule(Seen(**GOOD, flips_beyond_clean=(0.0, 0.1)), budget=0.02)
    assert "at most 5 points more flips than a model trained on clean data, at the upper end" in known
    natural = describe_rule(Seen(**NATURAL), budget=0.005)
    assert "decisions" not in natural
    assert "loses at most 0.5 points" in natural
    assert "nothing is called corrected" in describe_rule(Seen(), budget=0.02)


def see(flips: np.ndarray, right: np.ndarray) -> Seen:
    """Return what the rule sees.

    Args:
        flips: Per image, whether the artifact changes the answer: before, after, and of a clean-trained model.
        right: Per image, whether the answer with the artifact is right: before, after.
    """
    before, after, clean_trained = flips
    return Seen(
        flips=(before.mean(), after.mean()),
        flips_change=difference_interval(after, before),
        flips_p=mcnemar(after, before),
        biased_change=balanced_difference_interval(right[1], right[0], np.arange(len(before)) % 2, seed=0),
        flips_beyond_clean=difference_interval(after, clean_trained),
    )


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(15, 60), st.integers(2, 9), st.sampled_from([0.05, 0.2, 0.5]), st.booleans()
)
def test_with_more_images_like_these_nothing_better_is_called_worse(
    seed: int, half: int, more: int, left: float, is_reached: bool
) -> None:
    """Then fewer images make no word easier to get; whether what is left is that of a clean-trained model, or more."""
    rng, n = np.random.default_rng(seed), 2 * half
    flips = rng.random((3, n)) < np.array([[0.6], [left], [left if is_reached else left / 2]])
    right = rng.random((2, n)) < np.array([[0.4], [0.9 - left]])
    recalls = right.reshape(2, half, 2).mean(axis=1).mean(axis=1)
    assume(flips[1].sum() <= flips[0].sum() and recalls[1] >= recalls[0])  # more images rightly show what became worse
    few, many = see(flips, right), see(np.tile(flips, more), np.tile(right, more))
    assert RANKS.index(rule_on(many)) >= RANKS.index(rule_on(few))


@pytest.mark.parametrize("n", [30, 100, 400, 1600])
def test_what_is_left_beyond_the_margin_is_seldom_overlooked(n: int) -> None:
    """A model with 6 points more flips than a clean-trained one; with few images that would be easy to miss."""
    rng, called = np.random.default_rng(0), 0
    for _ in range(300):
        clean_trained = rng.random(n) < 0.10
        after = clean_trained | (rng.random(n) < (MARGIN + 0.01) / 0.90)
        seen = Seen(**GOOD, flips_beyond_clean=difference_interval(after, clean_trained))
        called += rule_on(seen) == "as a clean-trained model"
    assert called / 300 <= 0.05
