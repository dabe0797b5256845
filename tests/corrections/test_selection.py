"""Which strength is selected: never a diverged head or one that lost a class, whatever its score."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hansfree.corrections.path import fit_path
from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    OneStandardErrorRule,
    SelectionRule,
    Validation,
    check_selectable,
    choose_rule,
)
from hansfree.corrections.training import TrainedHead
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import Score
from tests.corrections.examples import held_out


def judged(
    clean: float,
    biased: float | None,
    *,
    finite: bool = True,
    lost: tuple[int, ...] = (),
    derivative: float | None = None,
    classes: Mapping[int, float] | None = None,
) -> Validation:
    """Return a validation; the standard errors are 0.01, and ``biased`` is None where it is not known."""
    return Validation(
        Score("balanced_accuracy_clean", clean, 0.01, 100),
        None if biased is None else Score("balanced_accuracy_biased", biased, 0.01, 100),
        is_finite=finite,
        lost=lost,
        derivative=derivative,
        by_class=classes or {},
    )


def slope(derivative: float, clean: float = 0.9, **options: Any) -> Validation:
    return judged(clean, None, derivative=derivative, **options)


def accuracies(*biased: float) -> list[Validation]:
    return [judged(0.9, each) for each in biased]


ORIGINAL = judged(0.90, 0.40, derivative=2.0, classes={0: 0.95, 1: 0.85})
BALANCED, KNEE, SLOPE = BalancedRule(), OneStandardErrorRule(), DerivativeRule()
GUARDED = BalancedRule(class_budgets={0: 0.1, 2: 0.02})
COSTLY = [slope(1.5), slope(0.1, clean=0.87), slope(0.1, finite=False), slope(0.1, lost=(1,)), slope(0.9)]
TWO_CLASSES = [judged(0.9, 0.5, classes={0: 0.85, 1: 0.95}), judged(0.9, 0.8, classes={0: 0.84, 1: 0.96})]


@pytest.mark.parametrize(
    ("rule", "candidates", "index", "words"),
    [
        (BALANCED, [judged(0.9, 0.5), judged(0.89, 0.8), judged(0.9, 0.7)], 1, "best of 3 admissible"),
        (BALANCED, [judged(0.9, 0.5)], 0, "the only admissible strength"),
        (BALANCED, [judged(0.9, 0.5), judged(0.8799, 0.8)], 0, "1 rejected"),
        (BALANCED, [judged(0.9, 0.5), judged(0.88, 0.8)], 1, "0 rejected"),  # at the budget
        (BalancedRule(budget=0.5), [judged(0.9, 0.5), judged(0.41, 0.8)], 1, ""),
        (BALANCED, [*accuracies(0.3), judged(0.88, 0.7), *accuracies(0.7, 0.7)], 1, ""),  # of equals the weakest
        (
            BALANCED,
            [judged(0.95, 0.99, finite=False), judged(0.9, 0.5), judged(0.95, 0.98, lost=(1,))],
            1,
            "2 rejected",
        ),
        (BALANCED, [], None, "no strength is admissible"),
        (BALANCED, [judged(0.9, 0.9, finite=False)], None, "diverged"),
        (BALANCED, [judged(0.9, 0.9, lost=(0, 2))], None, "never answers class 0, class 2"),
        (BALANCED, [judged(0.5, 0.9)], None, "loses more than 2 points on clean images"),
        (GUARDED, TWO_CLASSES, 0, "1 rejected"),
        (BALANCED, TWO_CLASSES, 1, "0 rejected"),
        (KNEE, accuracies(0.4, 0.6899, 0.69, 0.695, 0.7), 2, "69.0 %, the best has 70.0 %"),
        (KNEE, [judged(0.8, 0.7), *accuracies(0.55, 0.6), judged(0.9, 0.99, lost=(1,))], 2, "2 rejected"),
        (
            SLOPE,
            [slope(1.5), slope(0.19), slope(0.05), slope(0.0)],
            1,
            "weakest that leaves at most 10 %",
        ),
        (SLOPE, [slope(1.5), slope(0.19)], 1, "0.19 instead of 2"),
        (SLOPE, [slope(1.0), slope(0.2), slope(0.0)], 1, ""),  # exactly the share
        (DerivativeRule(share=0.03), [slope(1.5), slope(0.19), slope(0.05), slope(0.0)], 2, "at most 3 %"),
        (SLOPE, [slope(1.5), slope(0.7), slope(0.9), slope(0.7)], 1, "no strength leaves at most 10 %"),
        (SLOPE, COSTLY, 4, "3 rejected"),
        (SLOPE, COSTLY[1:4], None, "no strength is admissible"),
        (DerivativeRule(budget=0.05), COSTLY, 1, ""),
    ],
)
def test_the_selected_strength(
    rule: SelectionRule, candidates: Sequence[Validation], index: int | None, words: str
) -> None:
    choice = rule.choose(candidates, ORIGINAL)
    assert choice.index == index
    assert words in choice.reason


def test_the_class_furthest_over_its_budget_is_named_and_others_may_lose() -> None:
    lost = judged(0.9, 0.8, classes={0: 0.8, 1: 0.3})
    assert GUARDED.rejection(lost, ORIGINAL) == "loses more than 10 points of class 0 on clean images"
    assert BALANCED.rejection(lost, ORIGINAL) == ""
    before, after = (
        replace(each, by_class={**each.by_class, 2: value}) for each, value in ((ORIGINAL, 0.9), (lost, 0.8))
    )
    assert GUARDED.rejection(after, before) == "loses more than 2 points of class 2 on clean images"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (GUARDED, "lose at most 2 points on clean ones, at most 10 of class 0, at most 2 of class 2, are"),
        (
            BalancedRule(budget=0.125),
            "on biased validation images, among heads that lose at most 12.5",
        ),
        (KNEE, "weakest strength whose balanced accuracy on biased validation images is within one standard error of"),
        (SLOPE, "too few biased validation images to choose by accuracy"),
    ],
)
def test_a_rule_describes_itself(rule: SelectionRule, words: str) -> None:
    assert words in str(rule)


def test_a_head_stays_a_contender_while_a_better_one_may_make_it_the_knee() -> None:
    candidates = accuracies(0.69, 0.685, 0.7, 0.709)
    assert [KNEE.choose(candidates[:n], ORIGINAL).index for n in (1, 2, 3, 4)] == [0, 0, 0, 2]
    assert KNEE.choose(candidates[:3], ORIGINAL).contenders == (2,)


def test_a_rule_without_its_evidence_is_an_error() -> None:
    with pytest.raises(UndefinedMetricError, match="biased validation images"):
        BALANCED.choose([slope(1.0)], ORIGINAL)
    with pytest.raises(UndefinedMetricError, match="derivative"):
        SLOPE.choose([judged(0.9, 0.5)], ORIGINAL)


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
    assert choose_rule(data, budget=0.07, class_budgets={1: 0.05}) == rule(0.07, {1: 0.05})
    check_selectable(data)


def test_without_clean_images_of_two_classes_nothing_can_be_selected() -> None:
    with pytest.raises(DataError, match=r"2 classes of at least 25 of them; there are: red 80, green 24"):
        check_selectable(held_out(val_clean={0: 80, 1: 24}, val_biased={0: 80, 1: 80}))


# The path: heads are judged as they come from training, and only those that can still be selected stay in memory


def trained(strength: float, *history: Validation) -> TrainedHead:
    return TrainedHead(strength, lambda: {"w": torch.full((2,), strength)}, history[-1].is_finite, history)


validations = st.builds(
    judged,
    st.sampled_from([0.85, 0.88, 0.9, 0.95]),
    st.sampled_from([0.3, 0.5, 0.69, 0.695, 0.7, 0.704, 0.708]),
    finite=st.booleans(),
    lost=st.sampled_from([(), (), (1,)]),
    derivative=st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 2.0, 5.0]),
)


@pytest.mark.parametrize("rule", [BALANCED, SLOPE, KNEE])
@given(finals=st.lists(validations, min_size=1, max_size=8))
def test_the_path_selects_what_selecting_at_the_end_does(rule: SelectionRule, finals: list[Validation]) -> None:
    heads = (trained(float(i), judged(0.99, 0.99), final) for i, final in enumerate(finals))
    path = fit_path(heads, rule.selector(ORIGINAL), score=lambda head: [Score("s", head.strength, 0.0, 1)])
    expected = rule.choose(finals, ORIGINAL)
    assert path.selection == expected
    assert path.strengths == tuple(map(float, range(len(finals))))
    assert [scores[0].value for scores in path.scores] == list(path.strengths)
    assert [history[-1] for history in path.histories] == finals
    assert (None if path.best is None else path.best.strength) == expected.index
    assert path.final == (None if expected.index is None else finals[expected.index])


def test_only_the_best_head_stays_in_memory() -> None:
    alive: list[weakref.ref[TrainedHead]] = []
    counts: list[int] = []

    def heads() -> Iterator[TrainedHead]:
        for strength in range(6):
            head = trained(float(strength), judged(0.9, 0.8 if strength == 2 else 0.5))
            alive.append(weakref.ref(head))
            yield head
            del head

    def score(_head: TrainedHead) -> list[Score]:
        counts.append(sum(reference() is not None for reference in alive))
        return []

    path = fit_path(heads(), BALANCED.selector(ORIGINAL), score=score)
    assert max(counts) == 2  # the best and the current one
    assert [reference() is not None for reference in alive] == [number == 2 for number in range(6)]
    assert path.best is not None


def test_a_path_without_heads_has_no_selection() -> None:
    path = fit_path(iter(()), BALANCED.selector(ORIGINAL))
    assert (path.selection.index, path.best, path.final) == (None, None, None)


def test_the_only_head_is_taken_and_the_reason_says_whether_the_rule_rejects_it() -> None:
    for clean, reason in ((0.9, "has no strength to choose"), (0.1, "has no strength to choose, but loses more")):
        path = fit_path([trained(0.0, judged(clean, 0.5))], BALANCED.selector(ORIGINAL, has_strength=False))
        assert path.selection.index == 0
        assert path.selection.reason.startswith(reason)
