"""Which strength is selected: never a diverged head or one that lost a class, whatever its score."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call

from hansfree.activations import FeatureSpec, compute_features, cut_at
from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    OneStandardErrorRule,
    PaperRule,
    SelectionRule,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    slope_sizes,
)
from hansfree.corrections.strength_path import fit_path
from hansfree.corrections.training import Heads, TrainedHead
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import MIN_GROUP, Score
from hansfree.reasons import Reason, ReasonCode
from tests.corrections.examples import CASES, TinyImages, collect, held_out


def judged(
    clean: float,
    biased: float | None,
    *,
    finite: bool = True,
    lost: tuple[int, ...] = (),
    derivative: float | None = None,
    classes: Mapping[int, float] | None = None,
    plain: float | None = None,
) -> Validation:
    """Return a validation; the standard errors are 0.01, and ``biased`` is None where it is not known."""
    return Validation(
        Score("balanced_accuracy_clean", clean, 0.01, 100),
        None if biased is None else Score("balanced_accuracy_biased", biased, 0.01, 100),
        is_finite=finite,
        lost=lost,
        derivative=derivative,
        by_class=classes or {},
        accuracy_biased=plain,
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


Code = ReasonCode
NEAR = {"accuracy": 0.69, "best": 0.7}


@pytest.mark.parametrize(
    ("rule", "candidates", "index", "code", "values"),
    [
        (BALANCED, [judged(0.9, 0.5), judged(0.89, 0.8), judged(0.9, 0.7)], 1, Code.BEST_ON_VALIDATION, {}),
        (BALANCED, [judged(0.9, 0.5)], 0, Code.ONLY_ADMISSIBLE, {"admissible": 1}),
        (BALANCED, [judged(0.9, 0.5), judged(0.8799, 0.8)], 0, Code.ONLY_ADMISSIBLE, {"rejected": 1}),
        (BALANCED, [judged(0.9, 0.5), judged(0.88, 0.8)], 1, Code.BEST_ON_VALIDATION, {"rejected": 0}),  # at the budget
        (BalancedRule(budget=0.5), [judged(0.9, 0.5), judged(0.41, 0.8)], 1, Code.BEST_ON_VALIDATION, {}),
        # of equals the weakest
        (BALANCED, [*accuracies(0.3), judged(0.88, 0.7), *accuracies(0.7, 0.7)], 1, Code.BEST_ON_VALIDATION, {}),
        (
            BALANCED,
            [judged(0.95, 0.99, finite=False), judged(0.9, 0.5), judged(0.95, 0.98, lost=(1,))],
            1,
            Code.ONLY_ADMISSIBLE,
            {"rejected": 2},
        ),
        (BALANCED, [], None, Code.NONE_ADMISSIBLE, {"rejections": []}),
        (GUARDED, TWO_CLASSES, 0, Code.ONLY_ADMISSIBLE, {"rejected": 1}),
        (BALANCED, TWO_CLASSES, 1, Code.BEST_ON_VALIDATION, {"rejected": 0}),
        (KNEE, accuracies(0.4, 0.6899, 0.69, 0.695, 0.7), 2, Code.WITHIN_ONE_STDERR, NEAR),
        (
            KNEE,
            [judged(0.8, 0.7), *accuracies(0.55, 0.6), judged(0.9, 0.99, lost=(1,))],
            2,
            Code.WITHIN_ONE_STDERR,
            {"rejected": 2},
        ),
        (SLOPE, [slope(1.5), slope(0.19), slope(0.05), slope(0.0)], 1, Code.EFFECT_BELOW_SHARE, {"share": 0.1}),
        (SLOPE, [slope(1.5), slope(0.19)], 1, Code.EFFECT_BELOW_SHARE, {"effect": 0.19, "original": 2.0}),
        (SLOPE, [slope(1.0), slope(0.2), slope(0.0)], 1, Code.EFFECT_BELOW_SHARE, {}),  # exactly the share
        (DerivativeRule(share=0.03), [slope(1.5), slope(0.19), slope(0.05)], 2, Code.EFFECT_BELOW_SHARE, {}),
        (SLOPE, [slope(1.5), slope(0.7), slope(0.9), slope(0.7)], 1, Code.SMALLEST_EFFECT, {"share": 0.1}),
        (SLOPE, COSTLY, 4, Code.SMALLEST_EFFECT, {"rejected": 3}),
        (SLOPE, COSTLY[1:4], None, Code.NONE_ADMISSIBLE, {}),
        (DerivativeRule(budget=0.05), COSTLY, 1, Code.EFFECT_BELOW_SHARE, {}),
        # the paper's: no budget, no class that must be answered, and plain accuracy
        (
            PaperRule(),
            [judged(0.9, 0.9, plain=0.5), judged(0.2, 0.3, plain=0.8, lost=(1,))],
            1,
            Code.BEST_BIASED_ACCURACY,
            {"admissible": 2},
        ),
        (PaperRule(), [judged(0.9, None, plain=0.7)] * 2, 0, Code.BEST_BIASED_ACCURACY, {}),
    ],
)
def test_the_selected_strength(
    rule: SelectionRule,
    candidates: Sequence[Validation],
    index: int | None,
    code: ReasonCode,
    values: dict[str, Any],
) -> None:
    choice = rule.choose(candidates, ORIGINAL)
    assert (choice.index, choice.reason.code) == (index, code)
    assert choice.reason.values.items() >= values.items()


@pytest.mark.parametrize(
    ("rule", "candidate", "code", "values"),
    [
        (BALANCED, judged(0.9, 0.9, finite=False), Code.DIVERGED, {}),
        (BALANCED, judged(0.9, 0.9, lost=(0, 2)), Code.NEVER_ANSWERS, {"labels": [0, 2]}),
        (BALANCED, judged(0.5, 0.9), Code.CLEAN_DROP, {"drop": 0.4, "budget": 0.02}),
        (PaperRule(), judged(0.9, 0.9, plain=0.9, finite=False), Code.DIVERGED, {}),
        (PaperRule(), judged(0.9, None), Code.NO_BIASED_IMAGE, {}),
    ],
)
def test_a_rejection_gives_its_reason(
    rule: SelectionRule, candidate: Validation, code: ReasonCode, values: dict[str, Any]
) -> None:
    rejection = rule.rejection(candidate, ORIGINAL)
    assert rejection is not None
    assert (rejection.code, rejection.values) == (code, values)
    choice = rule.choose([candidate], ORIGINAL)
    assert (choice.index, choice.reason) == (None, Reason(Code.NONE_ADMISSIBLE, {"rejections": [rejection]}))
    assert Reason.from_json(json.loads(json.dumps(asdict(choice.reason)))) == choice.reason


def test_the_class_furthest_over_its_budget_is_named_and_others_may_lose() -> None:
    lost = judged(0.9, 0.8, classes={0: 0.8, 1: 0.3})
    before, after = (
        replace(each, by_class={**each.by_class, 2: value}) for each, value in ((ORIGINAL, 0.9), (lost, 0.8))
    )
    assert BALANCED.rejection(lost, ORIGINAL) is None
    for first, second, label, budget in ((ORIGINAL, lost, 0, 0.1), (before, after, 2, 0.02)):
        rejection = GUARDED.rejection(second, first)
        assert rejection is not None
        assert rejection.code == Code.CLASS_DROP
        assert rejection.values.items() >= {"label": label, "budget": budget}.items()


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


def test_the_only_head_is_taken_and_the_reason_says_whether_the_rule_rejects_it() -> None:
    for clean, code in ((0.9, Code.NO_STRENGTH), (0.1, Code.NO_STRENGTH_REJECTED)):
        path = fit_path([trained(0.0, judged(clean, 0.5))], BALANCED.selector(ORIGINAL, has_strength=False))
        assert (path.selection.index, path.selection.reason.code) == (0, code)


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
    found = slope_sizes(heads, [features], 1)

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
