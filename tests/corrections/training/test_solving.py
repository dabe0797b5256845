"""Converged heads: the minimum of what the formulas say, whatever the way to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.activations import Activations, FeatureSpec, compute_features, cut_at, find_pairs
from hansfree.cavs import PairCAV
from hansfree.corrections import DFR, RRR, LatentCorrection, RRClArC, RRClArCStep, Vanilla
from hansfree.corrections.training import FineTuning, SolverSupport, TrainedHead, solver
from hansfree.errors import DivergedError, OptionError
from hansfree.models.surgery import Cut, forward_mode
from tests.corrections.examples import CASES, CHANNELS, CLASSES, Case, TinyImages, collect, fit_cav

DATA = TinyImages(40)
TUNING = FineTuning(optimizer="converged", anchor=0.05)


class LinearHead(nn.Module):
    """ResNet in small: ReLU, mean pooling and one linear layer."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.fc = nn.Linear(CHANNELS, CLASSES, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.features(images).relu().mean((2, 3)))


LINEAR = Case(LinearHead, "features", "features")


def scene(case: Case = LINEAR) -> tuple[nn.Module, Activations, Cut]:
    model = case.model()
    activations = collect(case, model, DATA)
    return model, activations, cut_at(model, activations)


def solved(method: LatentCorrection, cut: Cut, activations: Activations, strengths: list[float]) -> list[TrainedHead]:
    return list(method.train(cut, activations, strengths))


def objective(
    cut: Cut, activations: Activations, method: RRClArC, state: dict[str, Tensor], strength: float
) -> tuple[Tensor, list[Tensor]]:
    """Loss, sum of squared derivatives and L2 towards the first head, straight from their formulas, in float64."""
    features = compute_features(cut, activations, method.features(activations))
    values, tangents = (torch.from_numpy(np.array(part[0])).double() for part in (features.values, features.tangents))
    weight, bias = (state[f"fc.{name}"].double().requires_grad_() for name in ("weight", "bias"))
    start = [cut.head_parameters()[f"fc.{name}"].detach().double() for name in ("weight", "bias")]
    loss = functional.cross_entropy(values @ weight.T + bias, torch.from_numpy(np.array(features.labels)))
    penalty = torch.einsum("nkd,cd->nkc", tangents, weight).square().sum((1, 2)).mean()
    far = sum((new - old).square().sum() for new, old in zip((weight, bias), start))
    return loss + strength * penalty + TUNING.anchor * far, [weight, bias]


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("strength", [0.0, 0.3, 30.0])
def test_the_slope_of_the_objective_is_zero(directions: int, strength: float) -> None:
    _, activations, cut = scene()
    method = RRClArC(fit_cav(activations, directions), tuning=TUNING)
    (head,) = solved(method, cut, activations, [strength])
    value, weights = objective(cut, activations, method, head.state, strength)
    value.backward()  # type: ignore[no-untyped-call]
    assert max(float(weight.grad.abs().max()) for weight in weights if weight.grad is not None) < 3e-4


def along_pairs(activations: Activations) -> RRClArCStep:
    """The second direction of pairs has no side: each of its two steps counts by half."""
    clean, biased = find_pairs(activations).T
    return RRClArCStep(PairCAV(count=2).fit_pairs(activations.pooled[clean], activations.pooled[biased]), tuning=TUNING)


@pytest.mark.parametrize("target", ["expected", "all", [0, 2], np.array([0, 2]), None], ids=str)
def test_along_the_axes_the_penalty_is_that_of_all_tangents(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LINEAR.model()
    activations = collect(LINEAR, model, TinyImages(40, artifact="pairs" if target is None else "leaks"))
    options = {"target": target, "tuning": TUNING}
    method = along_pairs(activations) if target is None else RRClArC(fit_cav(activations, 2), **options)
    cut = cut_at(model, activations)
    (short,) = solved(method, cut, activations, [3.0])
    monkeypatch.setattr(type(method), "solver", SolverSupport.SMOOTH)
    (full,) = solved(method, cut, activations, [3.0])
    torch.testing.assert_close(short.state, full.state, atol=2e-3, rtol=0)


@pytest.mark.parametrize("target", ["expected", "logprob", "all"])
def test_heads_of_several_layers_get_better_by_their_own_objective(target: str) -> None:
    _, activations, cut = scene(CASES["mlp"])
    method = RRClArC(fit_cav(activations), target=target, tuning=TUNING)  # type: ignore[arg-type]
    problem = solver._Problem(cut, compute_features(cut, activations, method.features(activations)), method)
    before = float(problem.value(problem.start, 0.5))
    assert float(problem.value(problem.solve(0.5)[0], 0.5)) < before - 0.01


def test_a_head_too_large_for_the_solver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, activations, cut = scene()
    monkeypatch.setattr("hansfree.corrections.training.solver.MAX_WEIGHTS", 3)
    with pytest.raises(OptionError, match=r"for heads of up to 3 weights.*train='last'"):
        solved(Vanilla(tuning=TUNING), cut, activations, [0.0])


def test_a_strength_that_runs_away_does_not_spoil_the_next() -> None:
    _, activations, cut = scene()
    method = RRClArC(fit_cav(activations), tuning=TUNING)
    (alone,) = solved(method, cut, activations, [2.0])
    *_, after = solved(method, cut, activations, [1.0, 3e305, 2.0])
    assert after.is_finite
    torch.testing.assert_close(after.state, alone.state, atol=2e-3, rtol=0)


def test_a_method_without_a_minimum_at_the_heads_input_is_refused() -> None:
    """Also one that the solver has never heard of."""

    class AtLayer(Vanilla):
        def features(self, activations: Activations) -> FeatureSpec:
            return FeatureSpec(at_layer=True)

    _, activations, cut = scene()
    options: tuple[dict[str, Any], ...] = ({"target": "random"}, {"norm": "cosine", "target": 0})
    sampled = [RRClArC(fit_cav(activations), tuning=TUNING, **each) for each in options]
    for method in (RRR(DATA, tuning=TUNING), AtLayer(tuning=TUNING), *sampled):
        with pytest.raises(OptionError, match="needs more than the inputs of the head"):
            solved(method, cut, activations, [1.0])


def test_strengths_without_a_solution_are_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def run_away(value: object, moved: Iterable[Tensor], *, tolerance: float) -> float:
        for tensor in moved:
            tensor.data.fill_(torch.nan)
        return float("nan")

    model, activations, cut = scene()
    monkeypatch.setattr("hansfree.corrections.training.solver.minimise", run_away)
    method = RRClArC(fit_cav(activations), tuning=TUNING)
    heads = method.train(cut, activations, [1.0, 20.0])
    assert [next(heads).is_finite for _ in range(2)] == [False, False]
    list(Vanilla(tuning=TUNING).train(cut, activations, [0.0]))
    assert caplog.messages == [
        "rr-clarc has no solution in finite numbers at strength 1, 20.",
        "vanilla has no solution in finite numbers.",
    ]
    with pytest.raises(DivergedError) as caught:  # the solver has no rate that could be smaller
        method.correct(model, activations)
    assert str(caught.value) == "RRClArC diverged: the weights are not finite. Use a strength below 1."


@pytest.mark.parametrize("method", [Vanilla, DFR])
def test_a_device_without_float64_is_refused_in_a_sentence(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forward_mode._KINDS, "mps", lambda: True)
    _, activations, cut = scene()
    with pytest.raises(OptionError, match="mps does not have"):
        solved(method(tuning=FineTuning(optimizer="converged", device="mps")), cut, activations, [1.0])
