"""Which strength is selected: never a diverged head or one that lost a class, whatever its score."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call

from hansfree.activations import Features, FeatureSpec, compute_features, cut_at
from hansfree.corrections.path import fit_path
from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    OneStandardErrorRule,
    SelectionRule,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    slope_sizes,
)
from hansfree.corrections.training import Heads, TrainedHead
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import MIN_GROUP, Score
from tests.corrections.examples import CASES, TinyImages, collect, held_out


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


CASE = CASES["convolution"]


def make_validator(count: int = 30) -> tuple[Any, Validator]:
    model = CASE.model()
    clean, biased = (collect(CASE, model, TinyImages(count, artifact=kind)) for kind in ("none", "all"))
    cut = cut_at(model, clean)
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
            if kind == "none":
                assert found[number].by_class == pytest.approx(dict(enumerate(recalls)))
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
    assert BalancedRule().choose([broken, constant, overflowing], worse).index is None


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
    cut = cut_at(model, clean)
    features = compute_features(cut, clean), compute_features(cut, collect(CASE, model, biased))
    found = Validator(*features, 0, np.arange(30) % 3, inserted=False)(Heads(cut, 1, "cpu"))[0]
    with torch.no_grad():
        answers = model(biased.images).argmax(1).numpy()
    recalls = [np.mean(answers[biased.labels == label] == label) for label in np.unique(biased.labels)]
    assert found.biased is not None
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
    assert constant.biased is not None
    assert (constant.biased.n, constant.biased.value) == (24, 0.5)
    assert constant.lost == (1, 2), "a class that is lost counts, however rare"
    (with_all,) = Validator(*features, 0, validator.original, inserted)(head_answering(cut, [5.0, 0.0, 0.0]))
    assert with_all.clean.value == pytest.approx(1 / 3)


# The derivative


@pytest.mark.parametrize("where", ["convolution", "tokens", "hooks"])
def test_the_derivative_is_that_of_the_log_odds(where: str) -> None:
    """Against finite differences of log p / (1 - p) at the layer, in float64, the shift added at every position."""
    case, data = CASES[where], TinyImages(6, artifact="all")
    model = case.model()
    activations = collect(case, model, data)
    cut = cut_at(model, activations)
    channels = activations.pooled.shape[1]
    shift = np.random.default_rng(0).normal(size=(1, channels))
    features = compute_features(cut, activations, FeatureSpec(directions=shift))
    heads = Heads(cut, 2, "cpu")
    with torch.no_grad():
        for parameter in heads.parameters.values():
            parameter[1] *= 2.0
    found = slope_sizes(heads, [features], 1, batch_size=4)

    layer, *others = next(activations.stream())
    step = torch.from_numpy(shift[0])
    step = step if layer.ndim == 3 else step[:, None, None]
    wide = cut_at(model, activations)
    for part in (wide.phi, wide.head):
        part.double()
    for number in (0, 1):
        state = {name: value.double() for name, value in heads.state(number).items()}
        ends = []
        for sign in (1, -1):
            moved = (layer.double() + sign * 1e-6 * step, *(other.double() for other in others))
            with torch.no_grad():
                probability = functional_call(wide.head, state, wide.phi(*moved)).softmax(1)[:, 1]
            ends.append((probability / (1 - probability)).log())
        expected = ((ends[0] - ends[1]) / 2e-6).abs().mean()
        assert found[number] == pytest.approx(float(expected), rel=1e-4)


def probed_validator(count: int = 0, **options: Any) -> tuple[Any, Validator]:
    """Return a validator of a natural bias with so many biased images, along some direction."""
    model = CASE.model()
    clean = collect(CASE, model, TinyImages(90, artifact="none"))
    cut = cut_at(model, clean)
    biased = compute_features(cut, collect(CASE, model, TinyImages(count, artifact="all"))) if count else None
    probed = compute_features(cut, clean, FeatureSpec(directions=np.eye(clean.pooled.shape[1])[:1]))
    given: dict[str, Any] = {"inserted": False, "least": MIN_GROUP, "probed": (probed,), **options}
    return cut, Validator(compute_features(cut, clean), biased, 0, np.arange(90) % 3, **given)


@pytest.mark.parametrize("count", [0, 6])
def test_too_few_biased_images_leave_their_accuracy_unknown(count: int) -> None:
    cut, validator = probed_validator(count)
    (found,) = validator(Heads(cut, 1, "cpu"))
    assert found.biased is None
    assert found.clean.n == 90
    assert found.is_finite
    assert found.derivative is not None
    assert found.derivative > 0


def test_a_derivative_that_is_no_number_is_a_broken_head() -> None:
    cut, validator = probed_validator()
    broken = Features(
        validator.probed[0].values,
        tuple(np.full_like(tangent, np.inf) for tangent in validator.probed[0].tangents),
        validator.probed[0].labels,
        validator.probed[0].n_positions,
    )
    _, validator = probed_validator(probed=(broken,))
    (found,) = validator(Heads(cut, 1, "cpu"))
    assert not found.is_finite
