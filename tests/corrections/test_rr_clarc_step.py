"""The penalty on a whole step, value and gradient, against two runs of the whole model in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
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
from hansfree.cavs import PairCAV
from hansfree.corrections import RRClArC, RRClArCStep
from hansfree.corrections.rr_clarc import StepNorm
from hansfree.corrections.training import FunctionalHead, HeadBatch
from hansfree.errors import OptionError
from hansfree.models.surgery import HeadParts, Stage
from tests.corrections.examples import (
    CASES,
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

DATA = TinyImages(6)
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


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
    torch.testing.assert_close(logits, model(images).detach(), **EXACT)
    torch.testing.assert_close(penalty, expected.detach(), **EXACT)
    parameters = {name: model.get_parameter(name) for name in cut.trainable}
    torch.testing.assert_close(slopes, gradients(expected.mean(), parameters), **EXACT)


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
    torch.testing.assert_close(penalty, along + (there + back) / 2, **EXACT)


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


def weighted(head: nn.Module) -> FunctionalHead:
    return FunctionalHead(HeadParts(head, (Stage(head),)), dict(head.named_parameters()))


def at_head(values: Live, tangents: Live) -> HeadBatch:
    n, nothing = len(values[0]), nn.Identity()
    labels, noise = torch.zeros(n, dtype=torch.int64), torch.Generator()
    return HeadBatch(values, tangents, labels, np.arange(n), noise, nothing, nothing)


def test_options_that_cannot_be() -> None:
    cav = fit_cav(collect(CASES["convolution"], CASES["convolution"].model(), DATA))
    with pytest.raises(OptionError, match="draws signs anew"):
        RRClArCStep(cav, target="random")
    with pytest.raises(OptionError, match="norm is 'cosine'"):
        RRClArCStep(cav, norm="cosine")  # type: ignore[arg-type]
