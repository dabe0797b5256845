"""A fold is exact or refused: by data flow, and in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hansfree.export import fold_projection
from tests.corrections.examples import Residual
from tests.export.examples import CHANNELS, CLASSES, Chain, corrected, images, sequential

FLAT = 3 * 8 * 8


def flat(*layers: nn.Module) -> Chain:
    return sequential(nn.Flatten(), *layers, nn.ReLU(), nn.Linear(CHANNELS, CLASSES))


def pooled(*between: nn.Module, inputs: int = CHANNELS) -> Chain:
    return sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), *between, nn.Linear(inputs, 3))


MEAN = nn.AdaptiveAvgPool2d(1)


# by name: model, layer, pooling, what becomes of the projection, and the layer that takes it
FOLDED = {
    "linear": (flat(nn.Linear(FLAT, CHANNELS)), "1", "max", "layer", "1"),
    "a block that ends with it": (flat(nn.Sequential(nn.Linear(FLAT, CHANNELS))), "1", "max", "layer", "1.0"),
    "mean pooling": (pooled(MEAN, nn.Flatten()), "1", "mean", "next", "4"),
    "dropout between": (pooled(MEAN, nn.Flatten(), nn.Dropout(0.5)), "1", "mean", "next", "5"),
    "at the pooled layer": (pooled(nn.ReLU(), MEAN, nn.Flatten()), "4", "max", "next", "5"),
    "flattened positions": (
        pooled(nn.AvgPool2d(2), nn.Flatten(), inputs=16 * CHANNELS), "1", "mean", "next", "4"
    ),
}  # fmt: skip


class Branching(Chain):
    """Its graph depends on the images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if float(x.sum()) > 0 else x * 1)


TIED = nn.Linear(CHANNELS, CHANNELS)


REFUSED = {
    "max pooled score": (pooled(MEAN, nn.Flatten()), "1", "max", "maximum over the positions"),
    "relu between": (pooled(nn.ReLU(), MEAN, nn.Flatten()), "1", "mean", "not linear"),
    "a clamp that seldom acts": (pooled(nn.Hardtanh(-99, 99), MEAN, nn.Flatten()), "1", "mean", "not linear"),
    "max pooling between": (pooled(nn.AdaptiveMaxPool2d(1), nn.Flatten()), "1", "mean", "not linear"),
    "uneven pooling": (
        pooled(nn.AdaptiveAvgPool2d(3), nn.Flatten(), inputs=9 * CHANNELS),
        "1",
        "mean",
        "not keep the mean",
    ),
    "a convolution next": (pooled(nn.Conv2d(CHANNELS, CHANNELS, 1), MEAN, nn.Flatten()), "1", "mean", "no plain lin"),
    "no bias": (
        sequential(nn.Conv2d(3, CHANNELS, 3), MEAN, nn.Flatten(), nn.Linear(CHANNELS, 3, bias=False)),
        "0",
        "mean",
        "has no bias",
    ),
    "shared weights": (
        sequential(nn.Conv2d(3, CHANNELS, 3), MEAN, nn.Flatten(), TIED, nn.ReLU(), TIED),
        "0",
        "mean",
        "used elsewhere",
    ),
    "a skip connection": (Residual().eval(), "branch", "mean", "mixes the layer's output"),
    "no graph": (Branching(*pooled(MEAN, nn.Flatten()).layers).eval(), "1", "mean", "graph is not known"),
}


def exact(folded: nn.Module, model: nn.Module, given: Tensor) -> None:
    with torch.no_grad():
        expected = model(given)
        torch.testing.assert_close(folded.eval()(given), expected, rtol=0, atol=2e-6 * float(expected.abs().max()))


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    old, new = before.state_dict(), after.state_dict()
    assert list(old) == list(new)
    return {name.rpartition(".")[0] for name in old if not torch.equal(old[name], new[name])}


@pytest.mark.parametrize("case", FOLDED)
def test_a_linear_layer_takes_the_projection_where_only_linear_operations_lie_between(case: str) -> None:
    plain, layer, pooling, kind, where = FOLDED[case]
    model = corrected(plain, layer, pooling=pooling)
    folded, folding = fold_projection(model, images())
    assert folding.kind == kind
    assert f"layers.{where}'" in folding.sentence
    assert ("8 x 8 pixels" in folding.sentence) == (case == "flattened positions")
    exact(folded, model, images(seed=1) * 10)
    assert changed(plain, folded) == {f"layers.{where}"}
    assert not torch.allclose(plain(images()), model(images()))  # there was something to fold
    if kind == "next" and case != "flattened positions":
        exact(folded, model, images(size=11, seed=2))


@pytest.mark.parametrize("case", REFUSED)
def test_whatever_is_not_exact_stays_a_module(case: str) -> None:
    plain, layer, pooling, reason = REFUSED[case]
    model = corrected(plain, layer, pooling=pooling)
    folded, folding = fold_projection(model, images())
    assert folding.kind == "module"
    assert reason in folding.sentence
    assert list(folded.state_dict()) == list(model.state_dict())
    assert torch.equal(folded(images()), model(images()))


@settings(max_examples=25, deadline=None)
@given(k=st.integers(1, 4), seed=st.integers(0, 99), tokens=st.booleans())
def test_the_folded_weights_are_those_of_the_formula(k: int, seed: int, tokens: bool) -> None:
    """Slowly: ``W' a = W (a - sum_i h_i (h_i . a)) ...`` for each basis vector, in float64."""
    layer: Any = nn.Linear(3 if tokens else FLAT, CHANNELS)
    around = [nn.Flatten(2), _Turn(), layer, _Mean()] if tokens else [nn.Flatten(), nn.Identity(), layer]
    plain = sequential(*around, nn.Linear(CHANNELS, CLASSES), seed=seed)
    model = corrected(plain, "2", k=k, seed=seed, pooling="mean")
    folded, folding = fold_projection(model, images())
    inserted: Any = model.hansfree_projection
    directions, target = inserted.directions.double().numpy(), inserted.target.double().numpy()
    if tokens:
        assert folding.kind == "next"
        weight, bias = (getattr(plain.layers[-1], name).double().detach().numpy() for name in ("weight", "bias"))
        new: Any = folded.get_submodule("layers.4")
        wanted_weight, wanted_bias = np.zeros_like(weight), bias.copy()
        for column in range(CHANNELS):
            basis = np.eye(CHANNELS)[column]
            shifted = basis - sum(h * (h @ basis) for h in directions)
            wanted_weight[:, column] = weight @ shifted
        wanted_bias += weight @ sum(h * t for h, t in zip(directions, target))
    else:
        assert folding.kind == "layer"
        weight, bias = (getattr(layer, name).double().detach().numpy() for name in ("weight", "bias"))
        new = folded.get_submodule("layers.2")
        shift = np.eye(CHANNELS) - sum(np.outer(h, h) for h in directions)
        wanted_weight = shift @ weight
        wanted_bias = shift @ bias + sum(h * t for h, t in zip(directions, target))
    np.testing.assert_allclose(new.weight.detach().numpy(), wanted_weight, atol=1e-5)
    np.testing.assert_allclose(new.bias.detach().numpy(), wanted_bias, atol=1e-5)


class _Turn(nn.Module):
    """From (n, channels, tokens) to (n, tokens, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class _Mean(nn.Module):
    """Over the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)
