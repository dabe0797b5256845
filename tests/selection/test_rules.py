"""Which strength is taken: never a broken head or one that lost a class, whatever its score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    OneStandardErrorRule,
    Validation,
    check_selectable,
    choose_rule,
)
from hansfree.errors import DataError, UndefinedMetricError
from tests.selection.examples import ORIGINAL, held_out, judged

RULE = BalancedRule()


def test_the_best_on_biased_images_is_taken() -> None:
    choice = RULE.choose([judged(0.9, 0.5), judged(0.89, 0.8), judged(0.9, 0.7)], ORIGINAL)
    assert choice.index == 1
    assert "3 admissible" in choice.reason


def test_a_head_over_the_budget_is_not_taken_and_one_at_the_budget_is() -> None:
    assert RULE.choose([judged(0.9, 0.5), judged(0.8799, 0.8)], ORIGINAL).index == 0
    assert RULE.choose([judged(0.9, 0.5), judged(0.88, 0.8)], ORIGINAL).index == 1
    assert BalancedRule(budget=0.5).choose([judged(0.9, 0.5), judged(0.41, 0.8)], ORIGINAL).index == 1


def test_of_equals_the_weakest_is_taken() -> None:
    assert RULE.choose([judged(0.9, 0.3), judged(0.88, 0.7), judged(0.9, 0.7), judged(0.9, 0.7)], ORIGINAL).index == 1


def test_a_broken_or_collapsed_head_is_not_taken_even_if_it_scores_best() -> None:
    candidates = [judged(0.95, 0.99, finite=False), judged(0.9, 0.5), judged(0.95, 0.98, lost=(1,))]
    choice = RULE.choose(candidates, ORIGINAL)
    assert choice.index == 1
    assert "2 rejected" in choice.reason


def test_no_admissible_head_is_said_with_all_reasons() -> None:
    candidates = [judged(0.9, 0.9, finite=False), judged(0.9, 0.9, lost=(0, 2)), judged(0.5, 0.9)]
    choice = RULE.choose(candidates, ORIGINAL)
    assert choice.index is None
    for reason in ("diverged", "never answers class 0, class 2", "more than 2 points on clean"):
        assert reason in choice.reason
    assert RULE.choose([], ORIGINAL).index is None


@pytest.mark.parametrize("budget", [0.02, 0.125])
def test_the_rule_says_its_budget(budget: float) -> None:
    assert f"{100 * budget:g} points" in str(BalancedRule(budget=budget))


# The budget of a class: what the mean over classes does not show

GUARDED = BalancedRule(class_budgets={0: 0.1, 2: 0.02})
BEFORE = judged(0.9, 0.4, classes={0: 0.95, 1: 0.85})


def test_a_head_that_gives_up_a_class_is_not_taken_where_that_class_has_a_budget() -> None:
    candidates = [judged(0.9, 0.5, classes={0: 0.85, 1: 0.95}), judged(0.9, 0.8, classes={0: 0.84, 1: 0.96})]
    choice = GUARDED.choose(candidates, BEFORE)
    assert choice.index == 0
    assert "1 rejected" in choice.reason
    assert RULE.choose(candidates, BEFORE).index == 1


def test_the_class_that_is_furthest_over_its_budget_is_named_and_others_may_lose() -> None:
    lost = judged(0.9, 0.8, classes={0: 0.8, 1: 0.3})
    assert GUARDED.rejection(lost, BEFORE) == "loses more than 10 points of class 0 on clean images"
    assert RULE.rejection(lost, BEFORE) == ""
    before, after = (
        replace(each, by_class={**each.by_class, 2: value}) for each, value in ((BEFORE, 0.9), (lost, 0.8))
    )
    assert GUARDED.rejection(after, before) == "loses more than 2 points of class 2 on clean images"


def test_where_no_head_keeps_the_budget_of_a_class_the_nearest_is_told() -> None:
    guarded = BalancedRule(class_budgets={0: 0.02})
    heads = [judged(0.9, 0.8, classes={0: 0.8}), judged(0.9, 0.8, classes={0: 0.88})]
    broken = judged(0.9, 0.8, finite=False, classes={0: 0.94})
    choice = guarded.choose([*heads, broken], BEFORE)
    assert choice.index is None
    assert choice.reason == (
        "no strength is admissible: diverged; loses more than 2 points of class 0 on clean images; "
        "the least that a strength loses of class 0 is 7.0 points"
    )


def test_the_rule_says_the_budgets_of_classes() -> None:
    assert "lose at most 2 points on clean ones, at most 10 of class 0, at most 2 of class 2, are" in str(GUARDED)
    assert "class" not in str(RULE).replace("every class", "")


def test_the_rule_for_poor_data_keeps_the_budgets_of_classes() -> None:
    data = held_out(val_biased={0: 40})
    assert choose_rule(data, budget=0.1, class_budgets={1: 0.05}) == DerivativeRule(0.1, {1: 0.05})


# The knee: the weakest that is as good as the best, as far as one standard error (0.01 here) can tell

KNEE = OneStandardErrorRule()


def test_the_knee_is_the_weakest_within_one_standard_error_of_the_best() -> None:
    candidates = [judged(0.9, 0.4), judged(0.9, 0.6899), judged(0.9, 0.69), judged(0.9, 0.695), judged(0.9, 0.7)]
    choice = KNEE.choose(candidates, ORIGINAL)
    assert choice.index == 2
    assert RULE.choose(candidates, ORIGINAL).index == 4
    assert "69.0 %, the best has 70.0 %" in choice.reason
    assert "within one standard error" in str(KNEE)


def test_a_rejected_head_sets_no_knee_and_is_none() -> None:
    candidates = [judged(0.8, 0.7), judged(0.9, 0.55), judged(0.9, 0.6), judged(0.9, 0.99, lost=(1,))]
    assert KNEE.choose(candidates, ORIGINAL).index == 2


def test_a_head_is_kept_for_as_long_as_a_better_one_may_make_it_the_knee() -> None:
    candidates = [judged(0.9, 0.69), judged(0.9, 0.685), judged(0.9, 0.7), judged(0.9, 0.709)]
    assert [KNEE.choose(candidates[:n], ORIGINAL).index for n in (1, 2, 3, 4)] == [0, 0, 0, 2]
    assert KNEE.choose(candidates[:3], ORIGINAL).contenders == (2,)


# By the derivative, where accuracy cannot be known

SLOPE = DerivativeRule()


def unseen(derivative: float, clean: float = 0.9, **options: Any) -> Validation:
    """Return what a head did where the images with the artifact are too few."""
    return replace(judged(clean, 0.0, derivative=derivative, **options), biased=None)


def test_the_weakest_strength_that_all_but_removes_the_effect_is_taken() -> None:
    candidates = [unseen(1.5), unseen(0.19), unseen(0.05), unseen(0.0)]
    choice = SLOPE.choose(candidates, unseen(2.0))
    assert choice.index == 1, "the strongest would win by the smallest derivative alone"
    assert "weakest that leaves at most 10 % of the effect, of " in choice.reason
    assert "0.19 instead of 2" in choice.reason
    assert DerivativeRule(share=0.03).choose(candidates, unseen(2.0)).index == 2


def test_exactly_the_share_is_low_enough() -> None:
    assert SLOPE.choose([unseen(1.0), unseen(0.25), unseen(0.0)], unseen(2.5)).index == 1


def test_where_none_is_low_enough_the_smallest_is_taken_and_that_is_said() -> None:
    choice = SLOPE.choose([unseen(1.5), unseen(0.7), unseen(0.9), unseen(0.7)], unseen(2.0))
    assert choice.index == 1
    assert "no strength leaves at most 10 %" in choice.reason


def test_a_head_that_costs_too_much_is_not_taken_for_its_derivative() -> None:
    candidates = [unseen(1.5), unseen(0.1, clean=0.87), unseen(0.1, finite=False), unseen(0.1, lost=(1,)), unseen(0.9)]
    choice = SLOPE.choose(candidates, unseen(2.0))
    assert choice.index == 4
    assert "3 rejected" in choice.reason
    assert SLOPE.choose(candidates[1:4], unseen(2.0)).index is None
    assert DerivativeRule(budget=0.05).choose(candidates, unseen(2.0)).index == 1


def test_the_reader_is_told_that_accuracy_was_not_the_measure() -> None:
    assert "too few biased validation images to choose by accuracy" in str(SLOPE)
    assert "2 points on clean" in str(SLOPE)


def test_a_rule_without_its_evidence_is_an_error() -> None:
    with pytest.raises(UndefinedMetricError, match="biased validation images"):
        RULE.choose([unseen(1.0)], ORIGINAL)
    with pytest.raises(UndefinedMetricError, match="derivative"):
        SLOPE.choose([judged(0.9, 0.5)], ORIGINAL)


# Which rule the data can feed


@pytest.mark.parametrize(
    ("biased", "inserted", "rule"),
    [
        ({0: 25, 1: 25}, False, BalancedRule),
        ({0: 25, 1: 24}, False, DerivativeRule),
        ({0: 90}, False, DerivativeRule),
        ({}, False, DerivativeRule),
        ({0: 40, 1: 40}, True, BalancedRule),
    ],
)
def test_the_rule_follows_the_counter_examples(biased: dict[int, int], inserted: bool, rule: type) -> None:
    data = held_out(val_clean={0: 40, 1: 40}, val_biased=biased, inserted=inserted)
    chosen = choose_rule(data, budget=0.07)
    assert type(chosen) is rule
    assert chosen.budget == 0.07
    check_selectable(data)


def test_without_clean_images_of_two_classes_nothing_can_be_chosen() -> None:
    with pytest.raises(DataError, match=r"2 classes of at least 25 of them; there are: red 80, green 24"):
        check_selectable(held_out(val_clean={0: 80, 1: 24}, val_biased={0: 80, 1: 80}))
