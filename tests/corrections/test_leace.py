"""LEACE: after it no linear classifier beats the constant, and of all such maps it changes least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from hansfree.activations import Activations
from hansfree.activations.cache import pool
from hansfree.corrections import LEACE
from hansfree.corrections.projections import least_erasure, within_classes
from hansfree.errors import DataError
from tests.corrections.examples import CASES, TinyImages, collect

CASE = CASES["convolution"]


def samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features and a bit that three of them know about, both centred."""
    rng = np.random.default_rng(seed)
    bit = (rng.random(400) < 0.3).astype(float)
    X = rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + np.outer(bit, [2.0, -1.0, 0.5, 0, 0, 0])
    return X - X.mean(0), bit - bit.mean()


def log_loss(X: np.ndarray, y: np.ndarray) -> float:
    model = LogisticRegression(C=1e6, max_iter=2000).fit(X, y)
    return float(-np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y.astype(int)])))


def test_no_linear_classifier_beats_the_constant() -> None:
    X, bit = samples()
    y = bit > 0
    d, r = least_erasure(X.T @ bit, X.T @ X)
    erased = X - np.outer(X @ r, d)
    np.testing.assert_allclose(erased.T @ bit, 0, atol=1e-9)
    share = y.mean()
    constant = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert log_loss(X, y) < constant - 0.05
    assert log_loss(erased, y) == pytest.approx(constant, abs=1e-6)


def test_it_is_the_papers_formula() -> None:
    """Belrose et al.: ``x - W^+ P W (x - mean)``, with W whitening and P the projection on ``W cov(x, z)``."""
    X, bit = samples(1)
    values, vectors = np.linalg.eigh(X.T @ X)
    whiten, unwhiten = (vectors * values**power @ vectors.T for power in (-0.5, 0.5))
    column = whiten @ X.T @ bit
    literal = unwhiten @ np.outer(column, column) / (column @ column) @ whiten
    d, r = least_erasure(X.T @ bit, X.T @ X)
    np.testing.assert_allclose(np.outer(d, r), literal, rtol=1e-9, atol=1e-12)


def test_it_changes_least_among_the_maps_that_erase() -> None:
    """Any ``I - d s^T`` with ``s.d = 1`` erases too; maps of higher rank that erase are these and a further change."""
    X, bit = samples(2)
    d, r = least_erasure(X.T @ bit, X.T @ X)
    least = np.square(np.outer(X @ r, d)).sum()
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 1.0):
        for _ in range(20):
            step = rng.normal(size=(6, 6))
            step -= np.outer(step @ d, d)  # still takes d to zero
            other = np.eye(6) - np.outer(d, r) + size * step
            np.testing.assert_allclose(other @ X.T @ bit, 0, atol=1e-9)
            assert np.square(X - X @ other.T).sum() > least


@pytest.fixture(scope="module")
def activations() -> Activations:
    return collect(CASE, CASE.model(), TinyImages(200))


def test_within_its_class_the_artifact_is_erased_from_the_pooled_activation(activations: Activations) -> None:
    (before,) = next(activations.stream())
    with torch.no_grad():
        after = pool(LEACE().inference_edit(activations)(before), "max").numpy()
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
