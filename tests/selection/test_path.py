"""Heads are judged as they come from training, and only the best is kept."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

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
)
from hansfree.corrections.training import TrainedHead
from hansfree.metrics import Score
from tests.selection.examples import ORIGINAL, judged, validations


def trained(strength: float, *history: Validation) -> TrainedHead:
    return TrainedHead(strength, lambda: {"w": torch.full((2,), strength)}, history[-1].is_finite, history)


@pytest.mark.parametrize("rule", [BalancedRule(), DerivativeRule(), OneStandardErrorRule()])
@given(finals=st.lists(validations, min_size=1, max_size=8))
def test_walking_the_path_chooses_what_choosing_at_the_end_does(rule: SelectionRule, finals: list[Validation]) -> None:
    heads = (trained(float(i), judged(0.99, 0.99), final) for i, final in enumerate(finals))
    path = fit_path(heads, rule.selector(ORIGINAL), score=lambda head: [Score("s", head.strength, 0.0, 1)])
    expected = rule.choose(finals, ORIGINAL)
    assert path.selection == expected
    assert path.strengths == tuple(map(float, range(len(finals))))
    assert [scores[0].value for scores in path.scores] == list(path.strengths)
    assert [history[-1] for history in path.histories] == finals
    if expected.index is None:
        assert path.best is None
    else:
        assert path.best is not None
        assert path.best.strength == expected.index


def test_only_the_best_head_is_kept() -> None:
    alive: list[weakref.ref[TrainedHead]] = []
    most = 0

    def heads() -> Iterator[TrainedHead]:
        for strength in range(6):
            head = trained(float(strength), judged(0.9, 0.8 if strength == 2 else 0.5))
            alive.append(weakref.ref(head))
            yield head
            del head

    def score(_head: TrainedHead) -> list[Score]:
        nonlocal most
        most = max(most, sum(reference() is not None for reference in alive))
        return []

    path = fit_path(heads(), BalancedRule().selector(ORIGINAL), score=score)
    assert most == 2  # the best and the current one
    assert [reference() is not None for reference in alive] == [number == 2 for number in range(6)]
    assert path.best is not None


def test_a_path_without_heads_has_no_choice() -> None:
    path = fit_path(iter(()), BalancedRule().selector(ORIGINAL))
    assert path.selection.index is None
    assert path.best is None


def test_the_only_head_is_taken_and_the_reason_says_whether_the_rule_rejects_it() -> None:
    for clean, reason in ((0.9, "has no strength to choose"), (0.1, "has no strength to choose, but loses more")):
        path = fit_path([trained(0.0, judged(clean, 0.5))], BalancedRule().selector(ORIGINAL, has_strength=False))
        assert path.selection.index == 0
        assert path.selection.reason.startswith(reason)
        assert path.final == path.histories[0][-1]
