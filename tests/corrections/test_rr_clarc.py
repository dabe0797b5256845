"""The penalty of RR-ClArC, value and gradient, against the paper's double backward through the whole model."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
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
    Live,
    collect_activations,
    compute_features,
    cut_at,
    find_pairs,
)
from hansfree.activations.features import spread
from hansfree.cavs import CAV, PairCAV, SignalCAV, join_cavs
from hansfree.corrections import RRClArC, RRClArCStep, rr_clarc
from hansfree.corrections.rr_clarc import StepNorm
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch
from hansfree.errors import DataError, OptionError
from hansfree.models.surgery import Cut, HeadParts, Stage
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

    def __init__(self, case: Case, k: int = 1) -> None:
        self.case = case
        self.activations: Activations = collect(case, case.model(), DATA)
        self.cav = fit_cav(self.activations, k)
        self.model: nn.Module = case.model().double()
        self.cut: Cut = in_double(case.model(), case)
        self.images = DATA.images.double()

    def ours(self, **options: Any) -> tuple[Tensor, Tensor, Any]:
        method = RRClArC(self.cav, **options)
        return value_and_gradients(self.cut, method, batch_of(self.cut, method, self.activations, DATA))

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
    bench = Bench(CASE, k=2)
    assert len(bench.directions()) == 2
    each = [rr_loss(bench.model, CASE, bench.images, m, h) for m in SIGNS for h in bench.directions()]
    bench.check(bench.ours(), 2 * torch.stack(each).mean(0))


def test_random_signs_are_drawn_per_image_and_average_to_the_expected() -> None:
    bench = Bench(CASE)
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


def test_cosine_of_several_classes_and_directions_adds_up() -> None:
    bench = Bench(CASE, k=2)
    expected = torch.zeros(len(DATA), dtype=torch.float64)
    for label in (0, 1):
        _, gradient = gradient_at_layer(bench.model, CASE, bench.images, lambda logits, c=label: logits[:, c])
        for h in bench.directions():
            expected = expected + squared_cosine(gradient, h)
    bench.check(bench.ours(target=[0, 1], norm="cosine"), expected)


def test_cosine_of_a_gradient_that_is_zero_is_zero_and_trains_nothing() -> None:
    bench = Bench(CASE)
    with torch.no_grad():
        bench.cut.head.get_parameter("fc.weight").zero_()
    _, penalty, slopes = bench.ours(target=0, norm="cosine")
    assert torch.equal(penalty, torch.zeros_like(penalty))
    assert all(torch.isfinite(slope).all() for slope in slopes.values())


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


def test_each_position_draws_signs_of_its_own() -> None:
    bench = Bench(CASE)
    (h,) = bench.directions()
    many = TinyImages(4000)
    many.images = bench.images[:1].float().expand(4000, -1, -1, -1)
    method = RRClArC(bench.cav, positions="each", target=1)
    _, drawn, _ = value_and_gradients(bench.cut, method, batch_of(bench.cut, method, bench.activations, many))
    _, gradient = gradient_at_layer(bench.model, CASE, bench.images[:1], lambda logits: logits[:, 1])
    expected = (along(gradient, h) ** 2).sum().item()
    assert abs(drawn.mean() - expected) < 3 * drawn.std() / len(drawn) ** 0.5
    assert drawn.std() > 0


@pytest.mark.parametrize("positions", ["sum", "each"])
def test_the_papers_scale_is_a_unit_direction_and_a_mean_over_positions(positions: Any) -> None:
    bench = Bench(CASE)
    _, ours, slopes = bench.ours(positions=positions)
    _, papers, paper_slopes = bench.ours(positions=positions, scale="paper")
    factor = (4 * bench.cav.scale_[0]) ** 2
    torch.testing.assert_close(ours, factor * papers, **EXACT)
    torch.testing.assert_close(slopes, {key: factor * slope for key, slope in paper_slopes.items()}, **EXACT)


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


@settings(max_examples=20, deadline=None)
@given(shift=st.floats(-50, 50), target=st.sampled_from(["expected", "all", 1, "logprob"]))
def test_the_penalty_does_not_see_a_shift_of_the_logits(shift: float, target: Any) -> None:
    bench = _shared_bench()
    _, before, _ = bench.ours(target=target)
    bias = bench.cut.head.get_parameter("fc.bias")
    with torch.no_grad():
        original = bias.clone()
        bias += shift
    try:
        _, after, _ = bench.ours(target=target)
    finally:
        with torch.no_grad():
            bias.copy_(original)
    torch.testing.assert_close(before, after, rtol=1e-8, atol=1e-9)


@settings(max_examples=20, deadline=None)
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
    return Bench(CASE)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"norm": "squarred"}, "Did you mean 'squared'"),
        ({"target": "randm"}, "Did you mean 'random'"),
        ({"scale": "papers"}, "Did you mean 'paper'"),
        ({"norm": "cosine"}, "goes with norm='squared' only"),
        ({"norm": "absolute"}, "goes with norm='squared' only"),
        ({"target": []}, "names no class"),
        ({"target": [0, "1"]}, "target"),
        ({"target": 1.5}, "target"),
        ({"strength": -1.0}, "at least 0"),
        ({"strength": float("nan")}, "at least 0"),
        ({"strength": float("inf")}, "at least 0"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        RRClArC(_shared_bench().cav, **options)


@pytest.mark.parametrize("target", [3, -1, [0, 7]])
def test_a_class_that_the_model_does_not_have_is_refused_before_training(target: Any) -> None:
    bench, model = _shared_bench(), CASE.model()
    method = RRClArC(bench.cav, target=target, tuning=FineTuning(epochs=1))
    with pytest.raises(OptionError, match="classes 0 to 2"):
        method.correct(model, bench.activations)


@pytest.mark.parametrize("target", [np.int64(1), np.array([1]), (1,), range(1, 2)])
def test_classes_may_come_from_numpy(target: Any) -> None:
    bench = _shared_bench()
    torch.testing.assert_close(bench.ours(target=target)[1], bench.ours(target=1)[1], **EXACT)


def test_a_cav_without_size_is_refused() -> None:
    bench = _shared_bench()
    cav = fit_cav(bench.activations)
    cav.scale_ = np.zeros(1)
    with pytest.raises(DataError, match="no size"):
        RRClArC(cav).correct(CASE.model(), bench.activations)


@pytest.mark.parametrize("name", CASES)
def test_the_penalty_of_several_artifacts_is_the_sum_of_theirs(name: str) -> None:
    case, data = CASES[name], TinyImages()
    activations = collect(case, case.model(), data)
    bits = (data.has_artifact, np.arange(len(data)) % 2 == 0)
    cavs = [SignalCAV().fit(activations.pooled, bit) for bit in bits]
    cut = in_double(case.model(), case)

    def penalty(cav: CAV) -> torch.Tensor:
        method = RRClArC(cav)
        return value_and_gradients(cut, method, batch_of(cut, method, activations, data))[1]

    torch.testing.assert_close(penalty(join_cavs(cavs)), penalty(cavs[0]) + penalty(cavs[1]), rtol=1e-9, atol=1e-12)


CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


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


def whole_steps(batch: HeadBatch, live: tuple[Tensor, ...], rows: np.ndarray) -> HeadBatch:
    """Put in place of the tangents what phi does over the whole steps."""
    before = batch.phi(*live)
    each = [
        [after - old for after, old in zip(batch.phi(*map(torch.add, live, spread(torch.from_numpy(h), live))), before)]
        for h in rows
    ]
    steps = tuple(torch.stack(parts).detach() for parts in zip(*each))
    return HeadBatch(batch.values, steps, batch.labels, batch.rows, batch.noise, batch.trunk, batch.phi)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_the_penalty_is_the_squared_difference_of_two_runs(name: str, k: int) -> None:
    case = CASES[name]
    activations = collect(case, case.model(), DATA)
    cav = fit_cav(activations, k)
    model, images = case.model().double(), DATA.images.double()
    cut, method = in_double(case.model(), case), RRClArCStep(cav)
    batch = whole_steps(
        batch_of(cut, method, activations, DATA), cut.trunk(images), method.features(activations).directions
    )
    logits, penalty, slopes = value_and_gradients(cut, method, batch)
    expected = torch.zeros(len(DATA), dtype=torch.float64)
    for direction, size in zip(cav.directions_, cav.size_):
        change = moved_logits(model, case, images, torch.from_numpy(direction * size)) - model(images)
        expected = expected + change.square().sum(1)
    assert (expected > 1e-6).any()
    torch.testing.assert_close(logits, model(images).detach(), **CLOSE)
    torch.testing.assert_close(penalty, expected.detach(), **CLOSE)
    parameters = {name: model.get_parameter(name) for name in cut.trainable}
    torch.testing.assert_close(slopes, gradients(expected.mean(), parameters), **CLOSE)


@pytest.mark.parametrize("name", ["convolution", "tokens", "skip connection"])
def test_the_cache_holds_what_phi_does_over_the_whole_step(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = case.model()
    for folder in (None, tmp_path):
        key = None if folder is None else "tiny"
        activations = collect_activations(model, case.layer, DATA, folder=folder, data_key=key)
        cut = cut_at(model, activations)
        rows = np.random.default_rng(1).normal(size=(2, activations.pooled.shape[1]))
        found = compute_features(cut, activations, FeatureSpec(directions=rows, finite_steps=True))
        tangents = compute_features(cut, activations, FeatureSpec(directions=rows))  # another name on disk
        live = tuple(part.detach() for part in cut.trunk(DATA.images))
        for i, row in enumerate(rows):
            moved = cut.phi(*map(torch.add, live, spread(torch.from_numpy(row), live)))
            for step, after, before in zip(found.tangents, moved, cut.phi(*live)):
                np.testing.assert_allclose(step[:, i], (after - before).detach(), rtol=1e-4, atol=1e-5)
        is_linear = name == "tokens"  # nothing bends before its first parameter
        assert is_linear == all(np.allclose(a, b, atol=1e-5) for a, b in zip(found.tangents, tangents.tangents))


def test_with_and_without_share_the_dropout_mask() -> None:
    """A head that ignores the step has no penalty, however wild its dropout is."""
    method = RRClArCStep(fit_cav(collect(CASES["mlp"], CASES["mlp"].model(), DATA)))
    head = MLPHead(dropout=0.5).double().train().classifier
    values = (torch.randn(50, 24, dtype=torch.float64),)
    nothing = (torch.zeros(1, 50, 24, dtype=torch.float64),)
    logits, changes = method._respond(weighted(head), at_head(values, nothing))
    assert torch.equal(changes, torch.zeros_like(changes))
    assert not torch.equal(logits, head(*values)), "this head has no dropout to share"
    assert logits.shape == (50, 3)


def test_a_saturated_head_hides_from_the_derivative_and_not_from_the_step() -> None:
    """Below its kink the head is flat; the artifact's whole shift carries it over."""
    cav = fit_cav(collect(CASES["convolution"], CASES["convolution"].model(), DATA))
    bent, batch = weighted(nn.Threshold(1, 1)), at_head((torch.zeros(1, 2),), (torch.full((1, 1, 2), 3.0),))
    _, derivative = RRClArC(cav)._respond(bent, batch)
    _, change = RRClArCStep(cav)._respond(bent, batch)
    assert derivative.abs().max() == 0
    assert change.flatten().tolist() == [2.0, 2.0]


def cav_without_side(case: Case) -> tuple[PairCAV, Activations]:
    """Fit two directions to pairs; along the second the artifact moves images both ways."""
    activations = collect(case, case.model(), TinyImages(60, artifact="pairs"))
    clean, biased = find_pairs(activations).T
    cav = PairCAV(count=2).fit_pairs(activations.pooled[clean], activations.pooled[biased])
    assert (cav.scale_ > 0).tolist() == [True, False]
    return cav, activations


def test_along_a_direction_without_a_side_both_ways_count_by_half() -> None:
    """The sign of such a direction is arbitrary, and the head bends: each way tells something of its own."""
    case = CASES["mlp"]
    cav, activations = cav_without_side(case)
    model, images = case.model().double(), DATA.images.double()
    cut, method = in_double(case.model(), case), RRClArCStep(cav)
    batch = whole_steps(
        batch_of(cut, method, activations, DATA), cut.trunk(images), method.features(activations).directions
    )
    _, penalty, _ = value_and_gradients(cut, method, batch)
    sided, other = torch.from_numpy(cav.directions_ * cav.size_[:, None])
    along, there, back = (
        (moved_logits(model, case, images, step) - model(images)).square().sum(1).detach()
        for step in (sided, other, -other)
    )
    assert not torch.allclose(there, back, rtol=0.01), "this head does not bend"
    torch.testing.assert_close(penalty, along + (there + back) / 2, **CLOSE)


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
    torch.testing.assert_close(penalties[1], penalties[0], **CLOSE)


def weighted(head: nn.Module) -> FunctionalHead:
    return FunctionalHead(HeadParts(head, (Stage(head),)), dict(head.named_parameters()))


def at_head(values: Live, tangents: Live) -> HeadBatch:
    n, nothing = len(values[0]), nn.Identity()
    labels, noise = torch.zeros(n, dtype=torch.int64), torch.Generator()
    return HeadBatch(values, tangents, labels, np.arange(n), noise, nothing, nothing)


def test_options_of_a_step_that_cannot_be() -> None:
    cav = fit_cav(collect(CASES["convolution"], CASES["convolution"].model(), DATA))
    with pytest.raises(OptionError, match="draws signs anew"):
        RRClArCStep(cav, target="random")
    with pytest.raises(OptionError, match="norm is 'cosine'"):
        RRClArCStep(cav, norm="cosine")  # type: ignore[arg-type]
