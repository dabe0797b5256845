"""All layers on a correction's objective: the paper's loss to the last digit, and an artifact that is used less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Subset, TensorDataset

from hansfree.cavs import PairCAV, SignalCAV
from hansfree.corrections import AClArC, PClArC, RRClArC, RRClArCStep, Vanilla
from hansfree.errors import DataError, DivergedError, OptionError
from hansfree.evaluation import evaluate
from hansfree.second_stage import _all_parameters, _loss, correct_all_layers
from hansfree.splitting import exact_forward_mode
from hansfree.training import FineTuning
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav, gradients, in_double, snapshot
from tests.corrections.reference import along, gradient_at_layer
from tests.forgetting.examples import CASE, TUNING, fit_inside, held_out, world

GENTLE = replace(TUNING, learning_rate=3e-3)
SHORT = FineTuning(optimizer="adam", learning_rate=1e-3, epochs=1, batch_size=8)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("k", [1, 2])
def test_the_loss_and_its_gradient_in_every_layer_are_the_papers(name: str, k: int) -> None:
    """Eq. 5 by hooks and a backward pass through a backward pass, in float64."""
    case, data = CASES[name], TinyImages(6)
    model = case.model()
    activations = collect(case, model, data)
    method = RRClArC(fit_cav(activations, k), strength=0.7)
    directions = method.directions(activations)
    cut = in_double(model, case)
    parameters = _all_parameters(cut)
    assert set(parameters) == set(dict(model.named_parameters()))
    batch = data.images.double(), torch.from_numpy(data.labels)
    with exact_forward_mode():
        found = _loss(cut, cut.head_parts(), method, directions, batch, list(range(6)), torch.Generator())

    penalty = torch.zeros(6, dtype=torch.float64)
    for row in torch.from_numpy(directions):
        for label in range(3):
            logits, gradient = gradient_at_layer(model, case, batch[0], lambda out, label=label: out[:, label])
            penalty = penalty + along(gradient, row).sum(1) ** 2
    expected = functional.cross_entropy(logits, batch[1]) + 0.7 * penalty.mean()

    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    theirs = gradients(expected, dict(model.named_parameters()))
    for path, gradient in gradients(found, parameters).items():
        torch.testing.assert_close(gradient, theirs[path], rtol=1e-7, atol=1e-10)


def test_all_layers_use_the_artifact_less_than_with_the_same_budget_and_no_penalty() -> None:
    w = world()
    facts = snapshot(w.fixed)

    def scores(model: nn.Module) -> dict[str, float]:
        clean, biased = held_out(model)
        cav = fit_inside(collect(CASE, model, w.data))  # the direction of its own layers
        return {
            score.metric: score.value for score in evaluate(model, clean=clean, biased=biased, biased_class=0, cav=cav)
        }

    control, second = (
        scores(correct_all_layers(w.fixed, "3", method, w.data, biased_class=0))
        for method in (Vanilla(tuning=GENTLE), RRClArC(SignalCAV(), strength=3.0, tuning=GENTLE))
    )
    assert snapshot(w.fixed) == facts
    assert second["tcav_sensitivity"] < 0.25 * control["tcav_sensitivity"]
    assert second["flip_rate"] < 0.7 * control["flip_rate"]
    assert second["accuracy_biased"] > control["accuracy_biased"] + 0.1
    assert second["accuracy_clean"] > scores(w.fixed)["accuracy_clean"] - 0.02


class Recorded(SignalCAV):
    """Remembers every direction that was found."""

    found: ClassVar[list[Any]] = []

    def _direction(self, X: Any, has_artifact: Any) -> Any:
        direction = super()._direction(X, has_artifact)
        self.found.append((len(X), direction))
        return direction


def test_the_direction_is_found_anew_in_every_epoch() -> None:
    w = world()
    Recorded.found.clear()
    method = RRClArC(Recorded(), tuning=replace(GENTLE, epochs=3))
    correct_all_layers(w.fixed, "3", method, w.data, biased_class=0)
    assert [count for count, _ in Recorded.found] == [int(np.sum(w.data.labels == 0))] * 3
    first, second, third = (direction for _, direction in Recorded.found)
    assert not np.allclose(first, second)
    assert not np.allclose(second, third)
    assert not hasattr(method.cav, "directions_")


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_moves_and_nothing_else(name: str) -> None:
    case, data = CASES[name], TinyImages(24)
    model = case.model().train()
    facts, state = snapshot(model), torch.random.get_rng_state()
    method = RRClArC(SignalCAV(), tuning=SHORT)
    fixed, same = (correct_all_layers(model, case.layer, method, data) for _ in range(2))
    assert snapshot(model) == facts
    assert torch.equal(torch.random.get_rng_state(), state)
    assert type(fixed) is type(model)
    assert fixed.training
    still = {path for path, p in fixed.named_parameters() if torch.equal(p, model.get_parameter(path))}
    assert still == set()
    assert all(torch.equal(b, model.get_buffer(path)) for path, b in fixed.named_buffers())
    assert all(torch.equal(p, same.get_parameter(path)) for path, p in fixed.named_parameters())


@pytest.mark.parametrize(
    "method",
    [
        RRClArCStep(SignalCAV(), tuning=SHORT),
        RRClArC(SignalCAV(), positions="each", tuning=SHORT),
        RRClArC(SignalCAV(), norm="cosine", target="all", scale="paper", tuning=replace(SHORT, optimizer="sgd")),
    ],
)
def test_variants_of_the_penalty_work_too(method: RRClArC) -> None:
    case, data = CASES["convolution"], TinyImages(24)
    model = case.model()
    plain = correct_all_layers(model, case.layer, Vanilla(tuning=method.tuning), data)
    fixed = correct_all_layers(model, case.layer, method, data)
    assert not torch.equal(fixed.get_parameter("features.weight"), plain.get_parameter("features.weight"))


def test_the_direction_can_come_from_pairs() -> None:
    case, data = CASES["convolution"], TinyImages(24)
    pairs = TinyImages(24, artifact="none"), TinyImages(24, artifact="all")
    model, method = case.model(), RRClArC(PairCAV(count=1), tuning=SHORT)
    unmarked = TensorDataset(data.images, torch.from_numpy(data.labels))
    fixed = correct_all_layers(model, case.layer, method, unmarked, pairs=pairs)
    assert not torch.equal(fixed.get_parameter("features.weight"), model.get_parameter("features.weight"))


def test_what_cannot_be_trained_is_refused() -> None:
    case, data = CASES["convolution"], TinyImages(24)
    model = case.model()
    activations = collect(case, model, data)
    cav, facts = fit_cav(activations), snapshot(model)
    rr = RRClArC(SignalCAV(), tuning=SHORT)

    def refused(error: type[Exception], match: str, method: Any = rr, images: Any = data, of: Any = model) -> None:
        with pytest.raises(error, match=match):
            correct_all_layers(of, case.layer, method, images)

    refused(OptionError, "AClArC is bound to the layers", AClArC(cav))
    refused(OptionError, "not by 'converged'", RRClArC(cav, tuning=FineTuning(optimizer="converged")))
    refused(OptionError, "leave balanced=True out", RRClArC(cav, tuning=FineTuning(balanced=True)))
    projected = PClArC(cav, tuning=SHORT).correct(model, activations)
    refused(OptionError, "would go stale", of=projected)
    refused(DataError, "which of them carry", images=TensorDataset(data.images, torch.from_numpy(data.labels)))
    refused(DataError, "two classes", images=Subset(data, np.flatnonzero(data.has_artifact).tolist()))
    labels = torch.full((24,), 3)
    refused(DataError, "classes 0 to 2", Vanilla(tuning=SHORT), images=TensorDataset(data.images, labels))
    wild = FineTuning(learning_rate=1e20, epochs=2, batch_size=8)
    refused(DivergedError, "In epoch 1 all layers with rr-clarc", RRClArC(SignalCAV(), strength=1e6, tuning=wild))
    refused(DivergedError, r"diverged with a learning rate of 1e\+20: .* Use a smaller one\.", Vanilla(tuning=wild))
    assert snapshot(model) == facts
