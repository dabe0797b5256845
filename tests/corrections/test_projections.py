"""P-ClArC and A-ClArC (a' = a + gamma(x) h), one-sided, R-ClArC and LEACE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from hansfree.activations import Activations, find_pairs
from hansfree.activations.cache import pool
from hansfree.cavs import PairCAV
from hansfree.corrections import LEACE, AClArC, OneSidedPClArC, PClArC, Projection, RClArC
from hansfree.corrections.projections import least_erasure, within_classes
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError
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


@settings(max_examples=20, deadline=None)
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


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("where", ["convolution", "tokens"])
def test_it_only_ever_takes_away(where: str, k: int) -> None:
    case, data = CASES[where], TinyImages(40)
    model = case.model()
    activations = collect(case, model, data)
    cav = fit_cav(activations, k)
    edit: Any = OneSidedPClArC(cav, tuning=TUNING).edit(activations)
    (before,) = next(activations.stream())
    after = edit.double()(before.double())
    old, new = (pool(a.double(), "max").numpy() @ cav.directions_.T for a in (before, after))
    np.testing.assert_allclose(new, np.minimum(old, cav.clean_score_), atol=1e-5)
    assert (old > cav.clean_score_ + 1e-3).any()
    untouched = (old < cav.clean_score_).all(1)
    assert untouched.any()
    assert torch.equal(after[untouched], before[untouched].double())


def test_along_a_direction_without_a_side_it_shifts_both_ways() -> None:
    """The further directions of pairs have an arbitrary sign: neither half of the images has more of the artifact."""
    case = CASES["convolution"]
    model = case.model()
    activations = collect(case, model, TinyImages(60, artifact="pairs"))
    clean, biased = find_pairs(activations).T
    cav = PairCAV(count=2).fit_pairs(activations.pooled[clean], activations.pooled[biased])
    assert (cav.scale_ > 0).tolist() == [True, False]
    edit: Any = OneSidedPClArC(cav, tuning=TUNING).edit(activations)
    (before,) = next(activations.stream())
    old, new = (pool(a.double(), "max").numpy() @ cav.directions_.T for a in (before, edit.double()(before.double())))
    assert (old[:, 1] < cav.clean_score_[1] - 1e-3).any()
    np.testing.assert_allclose(new[:, 0], np.minimum(old[:, 0], cav.clean_score_[0]), atol=1e-5)
    np.testing.assert_allclose(new[:, 1], cav.clean_score_[1], atol=1e-5)


CASE = CASES["convolution"]


@pytest.fixture(scope="module")
def activations() -> Activations:
    return collect(CASE, CASE.model(), TinyImages(200))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3])
def test_the_false_fire_rate_is_kept(rate: float, k: int, activations: Activations) -> None:
    fired = RClArC(fit_cav(activations, k), false_fire_rate=rate).fires(activations, activations)
    clean = ~np.asarray(activations.has_artifact)
    assert rate - 2 / clean.sum() <= fired[clean].mean() <= rate
    assert fired[~clean].mean() > fired[clean].mean()


def test_it_is_p_clarc_where_the_gate_fires_and_nothing_elsewhere(activations: Activations) -> None:
    cav = fit_cav(activations, 2)
    method = RClArC(cav)
    fired = method.fires(activations, activations)
    assert 0 < fired.sum() < len(fired)
    (before,) = next(activations.stream())
    with torch.no_grad():
        after = method.edit(activations)(before)
        projected = PClArC(cav).edit(activations)(before)
    expected = torch.where(torch.from_numpy(fired)[:, None, None, None], projected, before)
    torch.testing.assert_close(after, expected)


def test_the_details_state_how_often_it_fires(activations: Activations) -> None:
    model = CASE.model()
    clean, biased = (collect(CASE, model, TinyImages(50, artifact=kind, seed=1)) for kind in ("none", "all"))
    method = RClArC(fit_cav(activations))
    (detail,) = method.details(activations, clean=clean, biased=biased)
    rates = {
        word: (method.fires(activations, images).mean(), 50) for word, images in (("without", clean), ("with", biased))
    }
    assert detail.values == {"intended": 0.05, "rates": rates}
    (detail,) = method.details(activations, clean=clean, biased=None)
    assert detail.values["rates"].keys() == {"without"}


@pytest.mark.parametrize("bits", [None, np.ones(200, dtype=bool)])
def test_a_gate_needs_clean_images(bits: np.ndarray | None, activations: Activations) -> None:
    with pytest.raises(DataError, match="without the artifact"):
        RClArC(fit_cav(activations)).correct(CASE.model(), replace(activations, has_artifact=bits))


def samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features and a bit that three of them know about, both centred."""
    rng = np.random.default_rng(seed)
    bit = (rng.random(400) < 0.3).astype(float)
    X = rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + np.outer(bit, [2.0, -1.0, 0.5, 0, 0, 0])
    return X - X.mean(0), bit - bit.mean()


def test_it_is_the_papers_formula() -> None:
    """Belrose et al.: ``x - W^+ P W (x - mean)``, with W whitening and P the projection on ``W cov(x, z)``."""
    X, bit = samples(1)
    values, vectors = np.linalg.eigh(X.T @ X)
    whiten, unwhiten = (vectors * values**power @ vectors.T for power in (-0.5, 0.5))
    column = whiten @ X.T @ bit
    literal = unwhiten @ np.outer(column, column) / (column @ column) @ whiten
    d, r = least_erasure(X.T @ bit, X.T @ X)
    np.testing.assert_allclose(np.outer(d, r), literal, rtol=1e-9, atol=1e-12)


def test_within_its_class_the_artifact_is_erased_from_the_pooled_activation(activations: Activations) -> None:
    (before,) = next(activations.stream())
    with torch.no_grad():
        after = pool(LEACE().edit(activations)(before), "max").numpy()
    inside, bits = activations.labels == 0, np.asarray(activations.has_artifact)
    gaps = [X[inside & bits].mean(0) - X[inside & ~bits].mean(0) for X in (activations.pooled, after)]
    assert np.abs(gaps[0]).max() > 0.1
    np.testing.assert_allclose(gaps[1], 0, atol=1e-5)
    np.testing.assert_allclose(after.mean(0), activations.pooled.mean(0), atol=1e-5)
    # The class itself is not erased: its clean images keep some distance from those of the others.
    means = [after[(activations.labels == label) & ~bits].mean(0) for label in (0, 1)]
    own = [activations.pooled[(activations.labels == label) & ~bits].mean(0) for label in (0, 1)]
    assert np.linalg.norm(means[1] - means[0]) > 0.5 * np.linalg.norm(own[1] - own[0])


def test_what_cannot_be_erased_is_refused(activations: Activations) -> None:
    with pytest.raises(DataError, match="which training images"):
        within_classes(replace(activations, has_artifact=None))
    with pytest.raises(DataError, match="both without and with"):
        LEACE().correct(CASE.model(), replace(activations, has_artifact=activations.labels == 0))
