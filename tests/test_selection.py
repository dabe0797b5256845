"""Which strength is taken: never a broken head or one that lost a class, whatever its score."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hansfree.activations import compute_features, cut_again
from hansfree.metrics import Score
from hansfree.selection import BalancedRule, Choice, Validation, Validator, has_enough, walk_path
from hansfree.training import Heads, TrainedHead
from tests.corrections.examples import CASES, TinyImages, collect


def judged(clean: float, biased: float, *, finite: bool = True, lost: tuple[int, ...] = ()) -> Validation:
    scores = [
        Score(f"balanced_accuracy_{kind}", value, 0.01, 100) for kind, value in (("clean", clean), ("biased", biased))
    ]
    return Validation(*scores, is_finite=finite, lost=lost)


ORIGINAL = judged(0.90, 0.40)
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
    for reason in ("diverged", "never answers class 0, 2", "more than 2 points on clean"):
        assert reason in choice.reason
    assert RULE.choose([], ORIGINAL).index is None


@pytest.mark.parametrize("budget", [0.02, 0.125])
def test_the_rule_says_its_budget(budget: float) -> None:
    assert f"{100 * budget:g} points" in str(BalancedRule(budget=budget))


# What a head did, judged on images

CASE = CASES["convolution"]


def make_validator(count: int = 30) -> tuple[Any, Validator]:
    model = CASE.model()
    clean, biased = (collect(CASE, model, TinyImages(count, artifact=kind)) for kind in ("none", "all"))
    cut = cut_again(model, clean)
    features = compute_features(cut, clean), compute_features(cut, biased)
    return cut, Validator(*features, 0, np.arange(count) % 3)  # an original that answers every class


def head_answering(cut: Any, *biases: list[float]) -> Heads:
    heads = Heads(cut, len(biases), "cpu")
    with torch.no_grad():
        heads.parameters["fc.weight"].zero_()
        heads.parameters["fc.bias"].copy_(torch.tensor(biases))
    return heads


def test_the_validator_is_a_plain_loop_over_images() -> None:
    cut, validator = make_validator()
    heads = Heads(cut, 2, "cpu")
    with torch.no_grad():
        heads.parameters["fc.weight"][1] *= -3
    found = validator(heads)
    for number in range(2):
        model = cut.model_with(heads.state(number), CASE.model())
        for kind, score in (("none", found[number].clean), ("all", found[number].biased)):
            data = TinyImages(30, artifact=kind)
            recalls = []
            for label in range(3):
                answers = [int(model(data.images[i : i + 1]).argmax()) for i in np.flatnonzero(data.labels == label)]
                recalls.append(np.mean([answer == label for answer in answers]))
            assert score.value == pytest.approx(np.mean(recalls))
        assert found[number].is_finite
    assert found[0] != found[1]


def test_a_nan_head_and_a_constant_head_are_found_out_and_never_chosen() -> None:
    cut, validator = make_validator()
    broken, constant, overflowing = validator(
        head_answering(cut, [0.0, float("nan"), 0.0], [5.0, 0.0, 0.0], [float("inf"), 0.0, 0.0])
    )
    assert not broken.is_finite
    assert not overflowing.is_finite
    assert constant.is_finite
    assert constant.lost == (1, 2)
    assert broken.clean.value == 0, "no answer is a wrong answer"
    worse = judged(0.0, 0.0)  # every candidate beats it
    assert RULE.choose([broken, constant, overflowing], worse).index is None


def test_finite_weights_with_logits_that_overflow_are_not_finite() -> None:
    cut, validator = make_validator()
    heads = Heads(cut, 1, "cpu")
    with torch.no_grad():
        heads.parameters["fc.weight"].fill_(3e38)
        heads.parameters["conv.weight"].mul_(1e6)
    assert heads.are_finite() == [True]
    assert not validator(heads)[0].is_finite


def test_only_classes_that_the_original_answers_can_be_lost() -> None:
    cut, validator = make_validator()
    modest = Validator(validator.clean, validator.biased, 0, np.zeros(30, dtype=np.int64))
    assert modest(head_answering(cut, [5.0, 0.0, 0.0]))[0].lost == ()
    assert modest(head_answering(cut, [0.0, 5.0, 0.0]))[0].lost == (0,)


def test_biased_images_that_are_others_are_judged_by_their_own_labels() -> None:
    """A natural bias: there are fewer of them, and the clean images' labels say nothing about them."""
    model = CASE.model()
    clean, biased = collect(CASE, model, TinyImages(30, artifact="none")), TinyImages(12, artifact="all", seed=3)
    cut = cut_again(model, clean)
    features = compute_features(cut, clean), compute_features(cut, collect(CASE, model, biased))
    found = Validator(*features, 0, np.arange(30) % 3, inserted=False)(Heads(cut, 1, "cpu"))[0]
    with torch.no_grad():
        answers = model(biased.images).argmax(1).numpy()
    recalls = [np.mean(answers[biased.labels == label] == label) for label in np.unique(biased.labels)]
    assert found.biased.value == pytest.approx(np.mean(recalls))
    assert (found.clean.n, found.biased.n) == (30, 12)


@pytest.mark.parametrize("inserted", [True, False])
def test_classes_with_too_few_images_do_not_count(inserted: bool) -> None:
    cut, validator = make_validator(30)
    features = validator.clean, validator.biased
    for each in features:
        each.labels[:] = [0] * 12 + [1] * 12 + [2] * 6
    counted = Validator(*features, 0, validator.original, inserted, least=12)
    (constant,) = counted(head_answering(cut, [5.0, 0.0, 0.0]))
    assert (constant.clean.n, constant.clean.value) == (24, 0.5)
    # in the scenes, what is rare is what the shortcut gets wrong: there all biased images count
    assert (constant.biased.n, constant.biased.value) == ((24, 0.5) if inserted else (30, pytest.approx(1 / 3)))
    assert constant.lost == (1, 2), "a class that is lost counts, however rare"
    (with_all,) = Validator(*features, 0, validator.original, inserted)(head_answering(cut, [5.0, 0.0, 0.0]))
    assert with_all.clean.value == pytest.approx(1 / 3)


def test_a_class_has_enough_images_from_the_least_number_on() -> None:
    labels = np.array([7, 7, 7, 1, 1, 4])
    assert has_enough(labels, 2).tolist() == [True] * 5 + [False]
    assert has_enough(labels, 3).tolist() == [True] * 3 + [False] * 3
    assert has_enough(labels, 1).all()


# The path

validations = st.builds(
    judged,
    st.sampled_from([0.85, 0.88, 0.9, 0.95]),
    st.sampled_from([0.3, 0.5, 0.7]),
    finite=st.booleans(),
    lost=st.sampled_from([(), (), (1,)]),
)


def trained(strength: float, *history: Validation) -> TrainedHead:
    return TrainedHead(strength, {"w": torch.full((2,), strength)}, history[-1].is_finite, history)


@given(finals=st.lists(validations, min_size=1, max_size=8))
def test_walking_the_path_chooses_what_choosing_at_the_end_does(finals: list[Validation]) -> None:
    heads = (trained(float(i), judged(0.99, 0.99), final) for i, final in enumerate(finals))
    path = walk_path(heads, lambda seen: RULE.choose(seen, ORIGINAL), lambda head: [Score("s", head.strength, 0.0, 1)])
    expected = RULE.choose(finals, ORIGINAL)
    assert path.choice == expected
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

    path = walk_path(heads(), lambda seen: RULE.choose(seen, ORIGINAL), score)
    assert most == 2  # the best and the current one
    assert [reference() is not None for reference in alive] == [number == 2 for number in range(6)]
    assert path.best is not None


def test_a_path_without_heads_has_no_choice() -> None:
    path = walk_path(iter(()), lambda _seen: Choice(0, ""), lambda _head: [])
    assert path.choice.index is None
    assert path.best is None
