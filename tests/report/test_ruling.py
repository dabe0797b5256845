"""The rule of the verdict as a table of cases; and what more images, or fewer, may do to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hansfree.metrics import balanced_difference_interval, difference_interval, mcnemar
from hansfree.report.reading import MARGIN, Gain, Ruling, Seen, describe_rule, explain, rule_on

CLEAR = Gain(flips=(-0.46, -0.38), flips_p=0.001, accuracy=(0.10, 0.16))
NO_GAIN = Gain(flips=(-0.02, 0.01), flips_p=0.4, accuracy=(-0.01, 0.05))
GOOD = Seen(flips=(0.57, 0.15), over_original=CLEAR)
LITTLE = Seen(flips=(0.57, 0.40), over_original=replace(CLEAR, flips=(-0.20, -0.14)))
NATURAL = Seen(over_original=Gain(accuracy=(0.10, 0.16)))
RANKS: tuple[Ruling, ...] = ("not corrected", "partly corrected", "corrected", "as a clean-trained model")


def over_original(**changed: object) -> Seen:
    return replace(GOOD, over_original=replace(CLEAR, **changed))


def over_vanilla(seen: Seen = GOOD, **changed: object) -> Seen:
    return replace(seen, over_vanilla=replace(CLEAR, **changed))


@pytest.mark.parametrize(
    ("seen", "ruling"),
    [
        (GOOD, "corrected"),
        (replace(GOOD, is_usable=False), "do not use"),
        (replace(GOOD, flips_beyond_clean=(-0.02, 0.05)), "as a clean-trained model"),
        (replace(GOOD, flips_beyond_clean=(-0.02, 0.051)), "corrected"),  # more may be left than the margin
        (replace(GOOD, flips_beyond_clean=(-0.30, 0.30)), "corrected"),  # so few images show nothing
        (replace(GOOD, flips_beyond_clean=(0.01, 0.03)), "as a clean-trained model"),  # worse, and by little
        (replace(GOOD, flips=(0.57, 0.285)), "corrected"),
        (replace(GOOD, flips=(0.57, 0.29)), "partly corrected"),
        (LITTLE, "partly corrected"),
        (replace(LITTLE, flips_beyond_clean=(-0.02, 0.01)), "partly corrected"),  # both flip far too often
        (replace(LITTLE, flips_beyond_clean=(-0.02, 0.01), is_usable=False), "do not use"),
        (over_original(accuracy=(-0.01, 0.05)), "partly corrected"),
        (over_original(accuracy=(-0.05, -0.01)), "not corrected"),  # answers that stay the same, and wrong
        (over_original(flips=(-0.02, 0.01)), "partly corrected"),
        (over_original(flips=(0.01, 0.03)), "not corrected"),
        (over_original(flips_p=0.051), "partly corrected"),  # the interval alone is not enough
        (over_original(flips_p=0.125, accuracy=(-0.01, 0.05)), "not corrected"),
        (replace(GOOD, over_original=NO_GAIN), "not corrected"),
        (over_original(flips=(0.0, 0.0), accuracy=(0.0, 0.0)), "not corrected"),
        # plain fine-tuning has to be beaten too
        (over_vanilla(), "corrected"),
        (over_vanilla(accuracy=(-0.01, 0.05)), "partly corrected"),
        (over_vanilla(flips_p=0.3), "partly corrected"),
        (replace(GOOD, over_vanilla=NO_GAIN), "not corrected"),
        (over_vanilla(accuracy=(-0.05, -0.01)), "not corrected"),
        (over_vanilla(NATURAL, flips=None, flips_p=None), "partly corrected"),
        (replace(NATURAL, over_vanilla=Gain(accuracy=(-0.01, 0.05))), "not corrected"),
        (replace(GOOD, over_vanilla=Gain()), "corrected"),  # it was run, and nobody can compare
        # the artifact must not pull harder
        (replace(GOOD, pull=(0.35, 0.05), pull_change=(-0.32, -0.28)), "corrected"),
        (replace(LITTLE, pull=(0.026, 0.066), pull_change=(0.03, 0.05)), "not corrected"),
        (replace(GOOD, pull=(0.026, 0.066), pull_change=(0.03, 0.05)), "not corrected"),
        (replace(GOOD, pull=(0.026, 0.031), pull_change=(-0.01, 0.02)), "corrected"),  # more, and not clearly
        (replace(GOOD, pull=(0.02, -0.30), pull_change=(-0.34, -0.30)), "not corrected"),  # now it pushes away
        (replace(GOOD, pull=(-0.10, -0.02), pull_change=(0.06, 0.10)), "corrected"),  # less, from the other side
        (replace(GOOD, specificity_change=(-0.06, -0.01)), "not corrected"),
        (replace(NATURAL, specificity_change=(-0.06, -0.01)), "not corrected"),
        (replace(GOOD, specificity_change=(-0.06, 0.01)), "corrected"),
        # in the scenes: how much is left, nobody can measure
        (NATURAL, "partly corrected"),
        (replace(NATURAL, over_original=Gain(accuracy=(-0.01, 0.16))), "not corrected"),
        (replace(NATURAL, over_original=Gain(accuracy=(-0.16, -0.01))), "not corrected"),
        (Seen(), "cannot be known"),
        (Seen(is_usable=False), "do not use"),
    ],
)
def test_the_rule(seen: Seen, ruling: Ruling) -> None:
    assert rule_on(seen) == ruling


def test_the_words_are_of_what_can_be_applied() -> None:
    rule = describe_rule(GOOD, budget=0.02)
    assert "at most half as many decisions" in rule
    assert "McNemar test must agree: p below 0.05)" in rule
    assert "loses at most 2 points" in rule
    assert "clean-trained" not in rule
    assert "Vanilla" not in rule
    assert "than the original model and than plain fine-tuning (Vanilla)" in describe_rule(over_vanilla(), budget=0.02)
    known = describe_rule(replace(GOOD, flips_beyond_clean=(0.0, 0.1)), budget=0.02)
    assert "at most 5 points more flips than a model trained on clean data, at the upper end" in known
    guarded = describe_rule(GOOD, budget=0.02, class_budgets={"melanoma": 0.1})
    assert "loses at most 2 points, the sensitivity to “melanoma” at most 10 (beyond" in guarded
    natural = describe_rule(NATURAL, budget=0.005)
    assert "decisions" not in natural
    assert "loses at most 0.5 points" in natural
    assert "nothing is called corrected" in describe_rule(Seen(), budget=0.02)


def test_what_the_differences_to_the_original_do_not_show_is_told() -> None:
    assert explain(GOOD) == explain(LITTLE) == explain(over_vanilla()) == explain(Seen(is_usable=False)) == ""
    assert "plain fine-tuning (Vanilla) alone" in explain(replace(GOOD, over_vanilla=NO_GAIN))
    assert explain(replace(GOOD, over_original=NO_GAIN, over_vanilla=NO_GAIN)) == "", "the sentences say it"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"pull": (0.026, 0.066), "pull_change": (0.03, 0.05)},
            "pulls images harder towards the class that it goes with than before: it moves that class's probability by "
            "+6.6 points instead of +2.6.",
        ),
        (
            {"pull": (0.02, -0.3), "pull_change": (-0.34, -0.3)},
            "pushes images harder away from the class that it goes with than before: it moves that class's probability "
            "by \N{MINUS SIGN}30.0 points instead of +2.0.",
        ),
        (
            {"pull": (0.02, 0.03), "pull_change": (-0.01, 0.03), "false_alarms": (0.12, 0.155)},
            "pulls images harder towards the class that it goes with than before: with it, 15.5\N{NO-BREAK SPACE}% of "
            "the images of other classes are called by that class instead of 12.0\N{NO-BREAK SPACE}%.",
        ),
        ({}, "pulls images harder towards the class that it goes with than before."),
    ],
    ids=["towards", "away", "false alarms", "no numbers"],
)
def test_a_harder_pull_is_told_with_what_it_was_and_is(changed: dict[str, Any], words: str) -> None:
    """In all of them the class has more false alarms; a clear change of its probability is told first."""
    seen = replace(GOOD, specificity_change=(-0.06, -0.01), **changed)
    assert explain(seen) == f"The artifact {words}"


def gain(flips: np.ndarray, right: np.ndarray, before: int) -> Gain:
    """Return what the last model wins over another, given per model and image whether it flips and is right."""
    return Gain(
        flips=difference_interval(flips[-1], flips[before]),
        flips_p=mcnemar(flips[-1], flips[before]),
        accuracy=balanced_difference_interval(right[-1], right[before], np.arange(flips.shape[1]) % 2, seed=0),
    )


def see(flips: np.ndarray, right: np.ndarray) -> Seen:
    """Return what the rule sees.

    Args:
        flips: Per image, whether the artifact changes the answer: of a clean-trained model, before, fine-tuned, after.
        right: Per image, whether the answer with the artifact is right: of the same.
    """
    return Seen(
        flips=(flips[1].mean(), flips[-1].mean()),
        over_original=gain(flips, right, 1),
        over_vanilla=gain(flips, right, 2),
        flips_beyond_clean=difference_interval(flips[-1], flips[0]),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(15, 60), st.integers(2, 9), st.sampled_from([0.05, 0.2, 0.5]), st.booleans()
)
def test_with_more_images_like_these_nothing_better_is_called_worse(
    seed: int, half: int, more: int, left: float, is_reached: bool
) -> None:
    """Then fewer images make no word easier to get; whether what is left is that of a clean-trained model, or more."""
    rng, n = np.random.default_rng(seed), 2 * half
    flips = rng.random((4, n)) < np.array([[left if is_reached else left / 2], [0.6], [0.55], [left]])
    right = rng.random((4, n)) < np.array([[0.9], [0.4], [0.45], [0.9 - left]])
    recalls = right.reshape(4, half, 2).mean(axis=1).mean(axis=1)
    # more images rightly show what became worse
    assume((flips[3].sum() <= flips[1:3].sum(axis=1)).all() and (recalls[3] >= recalls[1:3]).all())
    few, many = see(flips, right), see(np.tile(flips, more), np.tile(right, more))
    assert RANKS.index(rule_on(many)) >= RANKS.index(rule_on(few))


@pytest.mark.parametrize("n", [30, 100, 400, 1600])
def test_what_is_left_beyond_the_margin_is_seldom_overlooked(n: int) -> None:
    """A model with 6 points more flips than a clean-trained one; with few images that would be easy to miss."""
    rng, called = np.random.default_rng(0), 0
    for _ in range(300):
        clean_trained = rng.random(n) < 0.10
        after = clean_trained | (rng.random(n) < (MARGIN + 0.01) / 0.90)
        seen = replace(GOOD, flips_beyond_clean=difference_interval(after, clean_trained))
        called += rule_on(seen) == "as a clean-trained model"
    assert called / 300 <= 0.05
