"""What heads do on validation images: accuracy, lost classes, and how far the artifact moves the log-odds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call

from hansfree.activations import Features, FeatureSpec, compute_features, cut_at
from hansfree.corrections.selection import (
    BalancedRule,
    Validator,
    slope_sizes,
)
from hansfree.corrections.training import Heads
from hansfree.metrics import MIN_GROUP
from tests.corrections.examples import CASES, TinyImages, collect
from tests.corrections.test_selection import judged

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
