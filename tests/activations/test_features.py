"""Values, tangents and shifted values at the head's door are those of phi, in memory and on disk."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hansfree._internal.hashing import seeded
from hansfree.activations import Activations, FeatureSpec, collect_activations, compute_features, cut_at
from hansfree.activations.cache import pool
from hansfree.corrections import Projection
from hansfree.models.surgery import Cut
from tests.activations.samples import Pictures, many_skips, small_net
from tests.models.zoo import Wired

LAYER = "features.10"  # maps of 2 x 2 at 32 px
PICTURES = Pictures(40, size=32)


def smooth() -> nn.Module:
    """Return a layer, a curved phi with a skip connection into it, and a head."""

    def run(net: nn.Module, images: Tensor) -> Tensor:
        stem = net.stem(images)
        return net.fc((torch.nn.functional.silu(net.layer(stem) * 2) * stem).mean((2, 3)))

    with seeded(1):
        convolutions = {"stem": nn.Conv2d(3, 6, 3, stride=2), "layer": nn.Conv2d(6, 6, 3, padding=1)}
        return Wired(run, **convolutions, fc=nn.Linear(6, 3))


@pytest.fixture(params=["memory", "disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "disk" else None


@pytest.fixture
def small(folder: Path | None) -> tuple[Cut, Activations]:
    model = small_net()
    activations = collect_activations(model, LAYER, PICTURES, folder=folder)
    return cut_at(model, activations), activations


def directions(k: int, channels: int) -> np.ndarray:
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(channels, k)))
    return np.ascontiguousarray(q.T)


def tensors(activations: Activations) -> list[Tensor]:
    return [torch.cat(parts).double() for parts in zip(*activations.stream())]


def slope(phi: nn.Module, live: list[Tensor], direction: np.ndarray) -> list[np.ndarray]:
    """Return the central difference quotient of phi along the direction, added at every position, in float64."""
    step = 1e-6 * torch.from_numpy(direction).double()[None, :, None, None]
    layer, *others = live
    with torch.no_grad():
        up, down = phi(layer + step, *others), phi(layer - step, *others)
    return [((u - d) / 2e-6).numpy() for u, d in zip(up, down)]


def test_values_are_phi_of_the_activations(small: tuple[Cut, Activations]) -> None:
    cut, activations = small
    features = compute_features(cut, activations)
    (layer,) = tensors(activations)
    (values,) = features.values
    assert np.allclose(values, layer.relu().mean((2, 3)), atol=1e-6)
    assert features.tangents == ()
    assert features.n_positions == 4
    assert len(features) == 40
    assert np.array_equal(features.labels, activations.labels)


@pytest.mark.parametrize(("make", "layer"), [(small_net, LAYER), (smooth, "layer")])
@pytest.mark.parametrize("k", [1, 3])
def test_tangents_are_slopes(make: Any, layer: str, k: int, folder: Path | None) -> None:
    model = make()
    activations = collect_activations(model, layer, PICTURES, folder=folder)
    cut = cut_at(model, activations)
    found = directions(k, activations.shape[0])
    features = compute_features(cut, activations, FeatureSpec(directions=found))
    live, phi = tensors(activations), copy.deepcopy(cut.phi).double()
    for row, direction in enumerate(found):
        for got, expected in zip(features.tangents, slope(phi, live, direction), strict=True):
            assert got.shape == (40, k, *expected.shape[1:])
            assert np.allclose(got[:, row], expected, atol=2e-5)
            assert np.abs(expected).max() > 1e-2
    for index in (np.array([7, 2, 30]), slice(4, 9)):
        values, tangents = features.rows(index)  # which have the directions first
        assert np.array_equal(values[0], features.values[0][index])
        assert np.array_equal(tangents[0], np.moveaxis(features.tangents[0][index], 1, 0))
    plain = compute_features(cut, activations)
    assert all(np.array_equal(a, b) for a, b in zip(features.values, plain.values, strict=True))


def test_what_runs_beside_the_layer_does_not_move(folder: Path | None) -> None:
    model = many_skips()
    activations = collect_activations(model, "layer", Pictures(5), folder=folder)
    found = directions(2, activations.shape[0])
    spec = FeatureSpec(directions=found, at_layer=True)
    features = compute_features(cut_at(model, activations), activations, spec)
    assert len(features.values) == len(features.tangents) == 13
    for got, expected in zip(features.values, tensors(activations), strict=True):
        assert np.array_equal(got, expected)
    assert np.allclose(features.tangents[0], found[None, :, :, None, None])
    assert not any(other.any() for other in features.tangents[1:])


def test_shifted_values(small: tuple[Cut, Activations]) -> None:
    cut, activations = small
    found = directions(2, 16)
    edit = Projection(found, np.array([0.3, -0.2]), pooling="max")
    features = compute_features(cut, activations, FeatureSpec(directions=found, edit=edit))
    (layer,) = tensors(activations)
    gamma = torch.tensor([0.3, -0.2]) - pool(layer, "max") @ torch.from_numpy(found).T
    shifted = layer + (gamma @ torch.from_numpy(found))[:, :, None, None]
    assert np.allclose(features.values[0], shifted.relu().mean((2, 3)), atol=1e-5)
    (expected,) = slope(copy.deepcopy(cut.phi).double(), [shifted], found[0])
    # The shift is made in float32: where it ends within a rounding error of ReLU's kink the slope is another one.
    assert np.isclose(features.tangents[0][:, 0], expected, atol=2e-5).mean() > 0.999
    at_layer = compute_features(cut, activations, FeatureSpec(edit=edit, at_layer=True))
    assert np.allclose(at_layer.values[0], shifted, atol=1e-5)


def test_features_on_disk_are_reused_when_they_are_the_same(tmp_path: Path) -> None:
    model = small_net()
    activations = collect_activations(model, LAYER, PICTURES, folder=tmp_path)
    cut, found = cut_at(model, activations), directions(2, 16)
    without_shards = Activations(**{**vars(activations), "shards": ()})  # computing anything from these fails

    def edit(target: float, pooling: Any = "max") -> Projection:
        return Projection(found, np.full(2, target), pooling=pooling)

    cases: list[dict[str, Any]] = [
        *({}, {"at_layer": True}, {"directions": found}, {"directions": found[::-1]}),
        *({"edit": edit(0.1)}, {"edit": edit(0.2)}, {"edit": edit(0.1, "mean")}),
        {"edit": edit(0.1), "directions": found},
    ]
    first = [compute_features(cut, activations, FeatureSpec(**case)) for case in cases]
    assert len({path.name for path in tmp_path.rglob("*features-*")}) == len(cases)
    for case, before in zip(cases, first):
        again = compute_features(cut_at(model, activations), without_shards, FeatureSpec(**case))
        assert np.array_equal(again.values[0], before.values[0])


def test_a_batch_norm_in_phi_is_part_of_the_key(tmp_path: Path) -> None:
    model = small_net()
    activations = collect_activations(model, "features.9", PICTURES, folder=tmp_path)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_parameter("features.10.weight").mul_(2)  # not trained by default, and behind the layer
    ours, theirs = (compute_features(cut_at(one, activations), activations) for one in (model, other))
    memory = collect_activations(other, "features.9", PICTURES)
    assert not np.allclose(ours.values[0], theirs.values[0])
    assert np.array_equal(theirs.values[0], compute_features(cut_at(other, memory), memory).values[0])


class Failing(nn.Module):
    """Fails at the second batch."""

    calls = 0

    def forward(self, layer: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            raise OSError("out of luck")
        return layer


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    model = small_net()
    activations = collect_activations(model, "features.4", Pictures(300), folder=tmp_path)
    before, fast = sorted(tmp_path.rglob("*")), torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(OSError, match="out of luck") as caught:
        compute_features(cut_at(model, activations), activations, FeatureSpec(edit=Failing()))
    assert caught.traceback  # keeps all frames alive: nothing may wait for them to go
    assert torch.is_grad_enabled()
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert sorted(tmp_path.rglob("*")) == before
