"""P-ClArC and A-ClArC: ``a' = a + gamma(x) h``, until the score along h is the mean of the clean / artifact images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from hansfree.activations.cache import pool
from hansfree.corrections import AClArC, PClArC, Projection, Vanilla
from hansfree.corrections.training import FineTuning
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav
from tests.corrections.reference import output_and_activation

SHAPES = {"flat": (5, 6), "tokens": (5, 4, 6), "map": (5, 6, 3, 2)}
TUNING = FineTuning(learning_rate=0.05, epochs=1, batch_size=100)


def shifted(activation: np.ndarray, h: np.ndarray, target: float, pooling: str) -> np.ndarray:
    """Shift one image's activation (positions, channels), literally."""
    pooled = activation.max(0) if pooling == "max" else activation.mean(0)
    gamma = target - sum(pooled[c] * h[c] for c in range(len(h)))
    return np.stack([position + gamma * h for position in activation])


def orthonormal(k: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(6, k)))[0].T


@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("kind", SHAPES)
def test_the_shift_is_the_papers(kind: str, pooling: Any) -> None:
    h = orthonormal(1, 0)
    activations = np.random.default_rng(1).normal(size=SHAPES[kind])
    result = Projection(h, np.array([0.7]), pooling=pooling).double()(torch.from_numpy(activations)).numpy()
    channels_last = {"flat": lambda a: a[None], "tokens": lambda a: a, "map": lambda a: a.reshape(6, -1).T}[kind]
    for before, after in zip(activations, result):
        expected = shifted(channels_last(before), np.float64(np.float32(h[0])), np.float32(0.7), pooling)
        np.testing.assert_allclose(channels_last(after), expected, rtol=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(SHAPES)),
    pooling=st.sampled_from(["max", "mean"]),
    k=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_score_is_the_target_afterwards_and_twice_is_once(kind: str, pooling: Any, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    directions, target = orthonormal(k, seed), rng.normal(size=k)
    projection = Projection(directions, target, pooling=pooling)
    activations = torch.from_numpy(rng.normal(size=SHAPES[kind])).float()
    once = projection(activations)
    scores = pool(once, pooling) @ torch.from_numpy(directions).float().T
    torch.testing.assert_close(scores, torch.from_numpy(target).float().expand(len(scores), k), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(projection(once), once, rtol=1e-4, atol=1e-5)
    # What is orthogonal to the directions stays as it is.
    rest = torch.eye(6) - torch.from_numpy(directions.T @ directions).float()
    torch.testing.assert_close(pool(once, "mean") @ rest, pool(activations, "mean") @ rest, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_p_clarc_gives_every_image_the_clean_mean_score(name: str, k: int) -> None:
    case, data = CASES[name], TinyImages()
    model = case.model()
    activations = collect(case, model, data)
    cav = fit_cav(activations, k)
    fixed = PClArC(cav, tuning=TUNING).correct(model, activations)
    directions = torch.from_numpy(cav.directions_).float()
    clean = activations.pooled[~np.asarray(activations.has_artifact)] @ cav.directions_.T
    np.testing.assert_allclose(cav.clean_score_, clean.mean(0), rtol=1e-5)

    # Collected from the corrected model, the layer's output is the projected one.
    again = collect(case, fixed, data)
    scores = torch.from_numpy(again.pooled) @ directions.T
    expected = torch.from_numpy(cav.clean_score_).float().expand(len(data), k)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)


def test_p_clarc_is_vanilla_and_a_projection() -> None:
    case, data = CASES["convolution"], TinyImages()
    model = case.model()
    activations = collect(case, model, data)
    projected = PClArC(fit_cav(activations), tuning=TUNING).correct(model, activations).state_dict()
    vanilla = Vanilla(tuning=TUNING).correct(model, activations).state_dict()
    assert {key for key in projected if key not in vanilla} == {
        "hansfree_projection.directions",
        "hansfree_projection.target",
    }
    assert all(torch.equal(projected[key], vanilla[key]) for key in vanilla)


def test_a_clarc_trains_on_shifted_activations_and_leaves_the_model_alone() -> None:
    """One step on all images equals a step, by hand, of the whole model with its activation shifted."""
    case, data = CASES["convolution"], TinyImages()
    model = case.model()
    activations = collect(case, model, data)
    cav = fit_cav(activations)
    fixed = AClArC(cav, tuning=TUNING).correct(model, activations)
    assert list(fixed.state_dict()) == list(model.state_dict())

    whole = case.model().double()
    _, activation = output_and_activation(whole, case, data.images.double())
    rows = activation.detach().flatten(2).transpose(1, 2).numpy()
    moved = np.stack([shifted(a, cav.directions_[0], cav.artifact_score_[0], "max") for a in rows])
    replaced = torch.from_numpy(moved).transpose(1, 2).reshape(activation.shape)
    handle = whole.features.register_forward_hook(lambda _m, _a, _o: replaced)
    loss = functional.cross_entropy(whole(data.images.double()), torch.from_numpy(data.labels))
    handle.remove()
    loss.backward()
    for name in ("conv.weight", "conv.bias", "fc.weight", "fc.bias"):
        parameter = whole.get_parameter(name)
        step: Tensor = parameter - TUNING.learning_rate * parameter.grad
        torch.testing.assert_close(fixed.get_parameter(name).double(), step, rtol=1e-4, atol=1e-6)
