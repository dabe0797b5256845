"""Scores over draws and their differences."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.metrics.base import NO_PREDICTION
from hansfree.tournament import DrawAnswers, Match, Outcome, compare, elect

LABELS = np.array([0, 0, 0, 0, 1, 1])


def answers(clean: list[list[int]], biased: list[list[int]]) -> DrawAnswers:
    return DrawAnswers(np.array(clean), np.array(biased))


def test_every_class_counts_the_same_and_every_flip_counts() -> None:
    said = answers([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]], [[1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]])
    assert said.score(LABELS, "balanced_accuracy_clean").tolist() == [0.875, 1]
    assert said.score(LABELS, "balanced_accuracy_biased").tolist() == [0.375, 1]
    assert said.score(LABELS, "flip_rate") == pytest.approx([0.5, 0])


def test_a_model_without_answers_is_not_steady() -> None:
    nothing = answers([[NO_PREDICTION] * 6], [[NO_PREDICTION] * 6])
    assert nothing.score(LABELS, "flip_rate") == pytest.approx([1])


def test_a_model_does_not_differ_from_itself() -> None:
    said = answers([[0, 1, 0, 1, 1, 0]], [[1, 1, 0, 1, 1, 0]])
    same = compare(said, said, LABELS, "balanced_accuracy_biased")
    assert (same.value, same.low, same.high, same.sign) == (0, 0, 0, 0)


def test_the_interval_is_that_of_the_formula_for_many_images() -> None:
    """One draw, two classes: the normal approximation of the mean over classes of paired differences."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [3000, 1000])
    ours, theirs = ((rng.random(4000) < share).astype(int) for share in (0.8, 0.7))
    right, wrong = labels, 1 - labels
    a, b = (np.where(hit, right, wrong)[None] for hit in (ours, theirs))
    found = compare(DrawAnswers(a, a), DrawAnswers(b, b), labels, "balanced_accuracy_clean")
    parts = [(ours - theirs)[labels == label] for label in (0, 1)]
    error = np.sqrt(sum(part.var() / len(part) for part in parts)) / 2
    mean = np.mean([part.mean() for part in parts])
    assert found.value == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.15 * error)
    assert found.sign == 1


def test_draws_that_disagree_widen_the_interval() -> None:
    labels = np.zeros(400, dtype=int)
    rng = np.random.default_rng(0)
    steady = np.where(rng.random((5, 400)) < 0.6, 0, 1)
    shaky = np.where(rng.random((5, 400)) < np.array([0.2, 0.4, 0.6, 0.8, 1.0])[:, None], 0, 1)
    rival = np.where(rng.random((5, 400)) < 0.5, 0, 1)
    widths = [
        found.high - found.low
        for found in (
            compare(DrawAnswers(each, each), DrawAnswers(rival, rival), labels, "balanced_accuracy_clean")
            for each in (steady, shaky)
        )
    ]
    assert widths[1] > 3 * widths[0]


def test_where_nothing_could_be_taken_the_model_stays_as_it_was() -> None:
    def outcome(said: int) -> Outcome:
        return Outcome(strength=1.0, objection="", val_clean=0.5, val_biased=0.5, clean=[said] * 3, biased=[said] * 3)

    left, taken = Match((outcome(0), outcome(0))), Match((None, outcome(1)))
    assert taken.answers(left).clean.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert list(taken.played) == [1]


def test_the_elected_is_the_best_within_the_budget() -> None:
    def seen(val_biased: float, objection: str = "") -> Outcome:
        return Outcome(strength=None, objection=objection, val_clean=0.5, val_biased=val_biased, clean=[0], biased=[0])

    ours = Match((seen(0.6), seen(0.6), None, None))
    theirs = Match((seen(0.5), seen(0.7, "loses too much"), seen(0.1), seen(0.9, "loses too much")))
    assert elect([ours, theirs]).outcomes == (ours.outcomes[0], ours.outcomes[1], theirs.outcomes[2], None)
