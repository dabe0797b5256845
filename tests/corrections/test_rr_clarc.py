"""The penalty of RR-ClArC, value and gradient, against the paper's double backward through the whole model."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hansfree.activations import (
    Activations,
    FeatureSpec,
    compute_features,
    cut_at,
    find_pairs,
)
from hansfree.activations.features import spread
from hansfree.cavs import CAV, PairCAV
from hansfree.corrections import RRClArC, RRClArCStep, rr_clarc
from hansfree.corrections.rr_clarc import StepNorm
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError, OptionError
from hansfree.models.surgery import Cut
from tests.corrections.examples import (
    CASES,
    CLASSES,
    Case,
    MLPHead,
    TinyImages,
    batch_of,
    collect,
    fit_cav,
    gradients,
    in_double,
    value_and_gradients,
)
from tests.corrections.reference import along, gradient_at_layer, rr_loss, squared_cosine

EXACT = {"rtol": 1e-9, "atol": 1e-11}
SIGNS = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=CLASSES)), dtype=torch.float64)
ONE_HOT = torch.eye(CLASSES, dtype=torch.float64)
DATA = TinyImages(6)
CASE = CASES["convolution"]


class Bench:
    """One model in float64 with the method's view and the reference's view of it."""

    def __init__(self, case: Case = CASE, k: int = 1, *, cav: CAV | None = None) -> None:
        self.case = case
        self.activations: Activations = collect(case, case.model(), DATA)
        self.cav: Any = cav or fit_cav(self.activations, k)
        self.model: nn.Module = case.model().double()
        self.cut: Cut = in_double(case.model(), case)
        self.images = DATA.images.double()

    def ours(self, **options: Any) -> tuple[Tensor, Tensor, Any]:
        method = RRClArC(self.cav, **options)
        return value_and_gradients(self.cut, method, batch_of(self.cut, method, self.activations, DATA))

    def steps(self) -> tuple[Tensor, Tensor, Any]:
        """Return what RR-ClArC (step) makes of the whole steps that phi takes, in float64."""
        method = RRClArCStep(self.cav)
        batch = batch_of(self.cut, method, self.activations, DATA)
        live, rows = self.cut.trunk(self.images), method.features(self.activations).directions
        before = batch.phi(*live)
        each = [
            [new - old for new, old in zip(batch.phi(*map(torch.add, live, spread(torch.from_numpy(h), live))), before)]
            for h in rows
        ]
        whole = tuple(torch.stack(parts).detach() for parts in zip(*each))
        return value_and_gradients(self.cut, method, replace(batch, tangents=whole))

    def change(self, step: np.ndarray) -> Tensor:
        """Return per image the squared change of the logits when the step is added to the layer's output."""
        changed = moved_logits(self.model, self.case, self.images, torch.from_numpy(step)) - self.model(self.images)
        return changed.square().sum(1)

    def directions(self) -> list[Tensor]:
        return [torch.from_numpy(h * s) for h, s in zip(self.cav.directions_, self.cav.scale_)]

    def check(self, ours: tuple[Tensor, Tensor, Any], expected: Tensor) -> None:
        """Compare logits, penalty per image, and the gradient of its mean by every parameter of the head."""
        logits, penalty, slopes = ours
        torch.testing.assert_close(logits, self.model(self.images).detach(), **EXACT)
        assert (expected > 0).any(), "a penalty of zero would prove nothing"
        torch.testing.assert_close(penalty, expected.detach(), **EXACT)
        parameters = {name: self.model.get_parameter(name) for name in self.cut.trainable}
        torch.testing.assert_close(slopes, gradients(expected.mean(), parameters), **EXACT)


@pytest.fixture(scope="module", params=CASES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(CASES[request.param])


def _signed(m: Tensor) -> Callable[[Bench, Tensor], Tensor]:
    return lambda bench, h: rr_loss(bench.model, bench.case, bench.images, m, h)


def _measured(measure: Callable[[Tensor], Tensor], size: Callable[[Tensor, Tensor], Tensor]) -> Any:
    return lambda bench, h: size(gradient_at_layer(bench.model, bench.case, bench.images, measure)[1], h)


def _log_probability(logits: Tensor) -> Tensor:
    return logits.log_softmax(1).sum(1)


def _size_of_cosines(g: Tensor, h: Tensor) -> Tensor:
    return (along(g, h / h.norm()).abs() / g.norm(dim=2).clamp(1e-8)).mean(1)


def _published_log_probability(logits: Tensor) -> Tensor:
    return (logits.softmax(1) + 1e-5).log().mean(1)


REFERENCES: dict[str, tuple[dict[str, Any], Callable[[Bench, Tensor], Any]]] = {
    "all": ({"target": "all"}, _signed(torch.ones(3).double())),
    "one class": ({"target": 1}, _signed(ONE_HOT[1])),
    "classes": ({"target": [0, 2]}, lambda *bench: sum(_signed(ONE_HOT[c])(*bench) for c in (0, 2))),
    "expected": ({}, lambda *bench: torch.stack([_signed(m)(*bench) for m in SIGNS]).mean(0)),
    "absolute": (
        {"target": 2, "norm": "absolute"},
        _measured(lambda logits: logits[:, 2], lambda g, h: along(g, h).sum(1).abs()),
    ),
    "logprob": ({"target": "logprob"}, _measured(_log_probability, lambda g, h: along(g, h).sum(1) ** 2)),
    "paper: logprob": (
        {"target": "logprob", "scale": "paper"},
        _measured(_published_log_probability, lambda g, h: along(g, h / h.norm()).mean(1) ** 2),
    ),
    "paper: each position": (
        {"target": 1, "scale": "paper", "positions": "each"},
        _measured(lambda logits: logits[:, 1], lambda g, h: (along(g, h / h.norm()) ** 2).mean(1)),
    ),
    "paper: absolute at each position": (
        {"target": "all", "norm": "absolute", "scale": "paper", "positions": "each"},
        _measured(lambda logits: logits.sum(1), lambda g, h: along(g, h / h.norm()).abs().mean(1)),
    ),
    "paper: cosine": (
        {"target": 0, "norm": "cosine", "scale": "paper"},
        _measured(lambda logits: logits[:, 0], lambda g, h: squared_cosine(g, h).sqrt()),
    ),
    "paper: cosine at each position": (
        {"target": 0, "norm": "cosine", "scale": "paper", "positions": "each"},
        _measured(lambda logits: logits[:, 0], _size_of_cosines),
    ),
    "cosine": ({"target": 0, "norm": "cosine"}, _measured(lambda logits: logits[:, 0], squared_cosine)),
    "cosine all": ({"target": "all", "norm": "cosine"}, _measured(lambda logits: logits.sum(1), squared_cosine)),
    "cosine logprob": ({"target": "logprob", "norm": "cosine"}, _measured(_log_probability, squared_cosine)),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_penalty_is_the_literal_one(bench: Bench, name: str) -> None:
    options, reference = REFERENCES[name]
    (h,) = bench.directions()
    bench.check(bench.ours(**options), reference(bench, h))


def test_several_directions_add_up() -> None:
    bench = Bench(k=2)
    assert len(bench.directions()) == 2
    each = [rr_loss(bench.model, CASE, bench.images, m, h) for m in SIGNS for h in bench.directions()]
    bench.check(bench.ours(), 2 * torch.stack(each).mean(0))


def test_random_signs_are_drawn_per_image_and_average_to_the_expected() -> None:
    bench = Bench()
    (h,) = bench.directions()
    many = TinyImages(4000)
    many.images = bench.images[:1].float().expand(4000, -1, -1, -1)
    method = RRClArC(bench.cav, target="random")
    _, drawn, _ = value_and_gradients(bench.cut, method, batch_of(bench.cut, method, bench.activations, many))
    possible = torch.stack([rr_loss(bench.model, CASE, bench.images[:1], m, h) for m in SIGNS]).detach()
    assert ((drawn[:, None] - possible.T).abs().amin(1) < 1e-9 * possible.max()).all()
    shares = [(drawn - value).abs().lt(1e-9 * possible.max()).double().mean().item() for value in possible.unique()]
    assert min(shares) > 0.1, "some sign vectors are never drawn"
    standard_error = drawn.std() / len(drawn) ** 0.5
    assert abs(drawn.mean() - possible.mean()) < 3 * standard_error


@pytest.mark.parametrize("name", ["convolution", "tokens", "skip connection"])
def test_each_position_by_itself_in_expectation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Average over every pattern of signs that the four positions can have."""
    bench = Bench(CASES[name], k=2)
    patterns = list(itertools.product([-1.0, 1.0], repeat=4))
    shape = (1, 4, 1) if name == "tokens" else (1, 1, 2, 2)
    results = []
    for pattern in patterns:
        signs = torch.tensor(pattern, dtype=torch.float64).reshape(shape)
        monkeypatch.setattr(rr_clarc, "random_signs", lambda _a, _g, signs=signs: signs)
        results.append(bench.ours(target=1, positions="each"))
    mean = torch.stack([penalty for _, penalty, _ in results]).mean(0)
    slopes = {key: torch.stack([each[key] for _, _, each in results]).mean(0) for key in results[0][2]}
    _, gradient = gradient_at_layer(bench.model, bench.case, bench.images, lambda logits: logits[:, 1])
    expected = sum((along(gradient, h) ** 2).sum(1) for h in bench.directions())
    bench.check((results[0][0], mean, slopes), expected)


DROPOUT = Case(lambda: MLPHead(dropout=0.5), "features.0", "features.0")


@pytest.mark.parametrize("k", [1, 2])
def test_value_and_derivative_share_the_dropout_mask(k: int) -> None:
    """One mask for the logits, all classes and all directions, as in a double backward through the whole model."""
    bench = Bench(DROPOUT, k)
    bench.cut.train_mode()
    bench.model.classifier.train()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        logits, penalty, slopes = bench.ours()
        torch.manual_seed(1)
        torch.testing.assert_close(logits, bench.model(bench.images).detach(), **EXACT)
        expected = torch.zeros(len(DATA), dtype=torch.float64)
        for m, h in itertools.product(ONE_HOT, bench.directions()):
            torch.manual_seed(1)
            expected = expected + rr_loss(bench.model, DROPOUT, bench.images, m, h)
    torch.testing.assert_close(penalty, expected.detach(), **EXACT)
    parameters = {name: bench.model.get_parameter(name) for name in bench.cut.trainable}
    torch.testing.assert_close(slopes, gradients(expected.mean(), parameters), **EXACT)


@settings(max_examples=8, deadline=None)
@given(
    size=st.floats(0.1, 10),
    sign=st.sampled_from([-1, 1]),
    options=st.sampled_from([{}, {"target": "all", "norm": "absolute"}, {"target": 0, "norm": "cosine"}]),
)
def test_the_sign_of_a_direction_does_not_matter_and_its_size_does(
    size: float, sign: int, options: dict[str, Any]
) -> None:
    bench = copy.copy(_shared_bench())
    _, before, _ = bench.ours(**options)
    bench.cav = copy.copy(bench.cav)
    bench.cav.directions_ = sign * bench.cav.directions_
    bench.cav.scale_ = size * bench.cav.scale_
    _, after, _ = bench.ours(**options)
    factor = {"squared": size**2, "absolute": size, "cosine": 1.0}[options.get("norm", "squared")]
    torch.testing.assert_close(after, factor * before, rtol=1e-8, atol=1e-10)


@functools.cache
def _shared_bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("target", [3, -1, [0, 7]])
def test_a_class_that_the_model_does_not_have_is_refused_before_training(target: Any) -> None:
    bench, model = _shared_bench(), CASE.model()
    method = RRClArC(bench.cav, target=target, tuning=FineTuning(epochs=1))
    with pytest.raises(OptionError, match="classes 0 to 2"):
        method.correct(model, bench.activations)


def test_single_positions_count_by_their_squares_in_our_scale() -> None:
    with pytest.raises(OptionError, match="Use scale='paper'"):
        RRClArC(_shared_bench().cav, target=0, norm="absolute", positions="each")


def test_a_cav_without_size_is_refused() -> None:
    bench = _shared_bench()
    cav = fit_cav(bench.activations)
    cav.scale_ = np.zeros(1)
    with pytest.raises(DataError, match="no size"):
        RRClArC(cav).correct(CASE.model(), bench.activations)


def moved_logits(model: nn.Module, case: Case, images: Tensor, step: Tensor) -> Tensor:
    """Run the whole model with ``step`` added to the layer's output at every position."""

    def add(output: Tensor) -> Tensor:
        (everywhere,) = spread(step, (output,))
        return output + everywhere

    module = model.get_submodule(case.module)
    if case.side == "output":
        handle = module.register_forward_hook(lambda _module, _inputs, output: add(output))
    else:
        handle = module.register_forward_pre_hook(lambda _module, inputs: (add(inputs[0]),))
    try:
        return model(images)
    finally:
        handle.remove()


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_penalty_is_the_squared_difference_of_two_runs(name: str, k: int) -> None:
    bench = Bench(CASES[name], k)
    steps = bench.cav.directions_ * bench.cav.size_[:, None]
    bench.check(bench.steps(), torch.stack([bench.change(step) for step in steps]).sum(0))


@pytest.mark.parametrize("name", ["convolution", "tokens", "skip connection"])
def test_the_cache_holds_what_phi_does_over_the_whole_step(name: str) -> None:
    case = CASES[name]
    model = case.model()
    activations = collect(case, model, DATA)
    cut = cut_at(model, activations)
    rows = np.random.default_rng(1).normal(size=(2, activations.pooled.shape[1]))
    found = compute_features(cut, activations, FeatureSpec(directions=rows, finite_steps=True))
    live = tuple(part.detach() for part in cut.trunk(DATA.images))
    for i, row in enumerate(rows):
        moved = cut.phi(*map(torch.add, live, spread(torch.from_numpy(row), live)))
        for step, after, before in zip(found.tangents, moved, cut.phi(*live)):
            np.testing.assert_allclose(step[:, i], (after - before).detach(), rtol=1e-4, atol=1e-5)


def cav_without_side(case: Case) -> tuple[PairCAV, Activations]:
    """Fit two directions to pairs; along the second the artifact moves images both ways."""
    activations = collect(case, case.model(), TinyImages(60, artifact="pairs"))
    clean, biased = find_pairs(activations).T
    cav = PairCAV(count=2).fit_pairs(activations.pooled[clean], activations.pooled[biased])
    assert (cav.scale_ > 0).tolist() == [True, False]
    return cav, activations


def test_along_a_direction_without_a_side_both_ways_count_by_half() -> None:
    """The sign of such a direction is arbitrary, and the head bends: each way tells something of its own."""
    cav, _ = cav_without_side(CASES["mlp"])
    bench = Bench(CASES["mlp"], cav=cav)
    sided, other = cav.directions_ * cav.size_[:, None]
    along, there, back = (bench.change(step) for step in (sided, other, -other))
    assert not torch.allclose(there, back, rtol=0.01), "this head does not bend"
    bench.check(bench.steps(), along + (there + back) / 2)


@pytest.mark.parametrize("norm", ["squared", "absolute"])
@pytest.mark.parametrize("has_side", [True, False])
def test_for_a_linear_head_it_is_rr_clarc(has_side: bool, norm: StepNorm) -> None:
    case = Case(lambda: nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.Flatten(), nn.Linear(24, 3)), "0", "0")
    cav, activations = cav_without_side(case)
    along, cut = fit_cav(activations) if has_side else cav, in_double(case.model(), case)
    penalties = []
    for kind in (RRClArC, RRClArCStep):
        method = kind(along, target=[0, 2], norm=norm)
        batch = batch_of(cut, method, activations, DATA)  # without a bend, the tangents are the whole steps
        penalties.append(value_and_gradients(cut, method, batch)[1])
    assert (penalties[0] > 1e-6).all()
    torch.testing.assert_close(penalties[1], penalties[0], **EXACT)
