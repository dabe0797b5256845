"""Relearning is plain fine-tuning, watched: its ends are those of other code, its mark is half of the effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hansfree.corrections import PClArC, Vanilla
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.evaluate import evaluate
from hansfree.evaluation.forgetting import (
    Relearning,
    RelearningCurve,
    relearn,
    reset_head,
)
from hansfree.metrics import Score
from tests.corrections.examples import CASES, TinyImages, collect, snapshot
from tests.evaluation.forgetting import TUNING, world

SLOW = replace(TUNING, learning_rate=1e-3, epochs=15)


def curve_of(model: nn.Module, tuning: FineTuning = SLOW) -> RelearningCurve:
    w = world()
    return relearn(model, w.train, clean=w.clean, biased=w.biased, biased_class=0, tuning=tuning)


def drawn(*values: float) -> RelearningCurve:
    scores = tuple(Score("probability_change", value, 0.01, 100) for value in values)
    return RelearningCurve(tuple(10 * i for i in range(len(values))), scores, scores)


def test_steps_are_read_from_a_straight_line() -> None:
    curve = drawn(0.1, 0.2, 0.15, 0.4)
    assert curve.steps_until(0.05) == 0
    assert curve.steps_until(0.175) == pytest.approx(7.5)
    assert curve.steps_until(0.3) == pytest.approx(26)
    assert curve.steps_until(0.41) is None


@pytest.mark.parametrize("method", [None, PClArC])
def test_both_ends_are_those_of_plain_fine_tuning(method: type[PClArC] | None) -> None:
    w = world()
    model = w.model if method is None else method(w.cav, tuning=TUNING).correct(w.model, w.train)
    tuning = replace(SLOW, epochs=2)
    facts = snapshot(model)
    curve = curve_of(model, tuning)
    assert snapshot(model) == facts
    assert curve.steps == (0, 10, 20)
    ends = [(model, 0)]
    if method is None:
        ends.append((Vanilla(tuning=tuning).correct(model, w.train), -1))
    for end, at in ends:
        scores = {score.metric: score for score in evaluate(end, clean=w.clean, biased=w.biased, biased_class=0)}
        for metric in ("flip_rate", "probability_change"):
            assert getattr(curve, metric)[at].value == pytest.approx(scores[metric].value, abs=1e-5)


def test_a_corrected_head_relearns_what_its_layers_still_hold() -> None:
    w = world()
    found = Relearning(*(curve_of(model) for model in (w.model, w.fixed, reset_head(w.model, w.train))))
    assert found.half == pytest.approx(found.original.probability_change[0].value / 2)
    assert found.corrected.probability_change[0].value < 0.5 * found.half
    steps = found.corrected.steps_until(found.half)
    assert steps is not None
    assert 10 < steps < 100
    assert f"Half of the effect is back after {steps:.0f} steps; a fresh head reaches it" in found.describe()


def test_the_words_fit_the_curves() -> None:
    original = drawn(0.4, 0.4, 0.4)
    assert Relearning(original, drawn(0.1, 0.1, 0.15)).describe().endswith("is back not within 20 steps.")
    assert "was never gone" in Relearning(original, drawn(0.3, 0.3, 0.3)).describe()
    assert "a fresh head reaches it after 10 steps" in Relearning(original, original, drawn(0, 0.2, 0.3)).describe()
    with pytest.raises(DataError, match=r"by 0\.000 in the original model"):
        _ = Relearning(drawn(0.0), drawn(0.0)).half


def test_a_fresh_head_keeps_the_layers_and_draws_the_rest_by_its_seed() -> None:
    w = world()
    facts, state = snapshot(w.model), torch.random.get_rng_state()
    fresh, same, other = (reset_head(w.model, w.train, seed=seed) for seed in (0, 0, 1))
    assert snapshot(w.model) == facts
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, parameter in fresh.named_parameters():
        is_kept = name[0] in "13"
        assert torch.equal(parameter, w.model.get_parameter(name)) == is_kept
        assert torch.equal(parameter, same.get_parameter(name))
        assert torch.equal(parameter, other.get_parameter(name)) == is_kept


class Scaled(nn.Module):
    """A parameter that no module of torch owns."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 6, 8)
        self.weight = nn.Parameter(torch.ones(3, 6))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.features(images).flatten(1) @ self.weight.T


def test_what_cannot_be_relearned_is_refused() -> None:
    w = world()
    with pytest.raises(OptionError, match="counted in steps"):
        curve_of(w.model, FineTuning(optimizer="converged"))
    with pytest.raises(DataError, match="same images"):
        relearn(w.model, w.train, clean=w.clean, biased=replace(w.biased, ids=w.biased.ids + 1), biased_class=0)
    model = Scaled().eval()
    with pytest.raises(DataError, match="the model of Scaled cannot start anew"):
        reset_head(model, collect(CASES["convolution"], model, TinyImages()))
    labels = np.full(len(w.train), 3)
    with pytest.raises(DataError, match="classes 0 to 2"):
        relearn(w.model, replace(w.train, labels=labels), clean=w.clean, biased=w.biased, biased_class=0)
