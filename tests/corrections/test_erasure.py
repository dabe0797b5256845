"""After erasure no linear classifier tells the label, in one go and in batches; LEACE changes the features least."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import hansfree as hf
from hansfree.corrections.projections import least_erasure
from hansfree.errors import DataError, OptionError

RNG = np.random.default_rng(0)
Z = RNG.integers(0, 3, 600)
X = RNG.normal(size=(600, 8)) @ RNG.normal(size=(8, 8)) + np.eye(3)[Z] @ RNG.normal(size=(3, 8)) * 4 + 100


@pytest.mark.parametrize("method", ["leace", "projection"])
def test_nothing_linear_is_left_of_three_classes(method: str) -> None:
    erased = hf.erase(X, Z, method=method)  # type: ignore[arg-type]
    centred = erased - erased.mean(0)
    assert np.abs(centred.T @ np.eye(3)[Z]).max() < 1e-6
    score = LogisticRegression(max_iter=1000).fit(erased, Z).score(erased, Z)
    assert score <= np.bincount(Z).max() / 600 + 0.01
    assert LogisticRegression(max_iter=5000).fit(X, Z).score(X, Z) > 0.7
    batches = hf.Eraser(method)  # type: ignore[arg-type]
    for rows in np.split(np.arange(600), [7, 100, 450]):
        batches.partial_fit(X[rows], Z[rows], classes=[0, 1, 2])
    np.testing.assert_allclose(batches.transform(X), erased, atol=1e-8)
    np.testing.assert_allclose(batches.mean_, X.mean(0))


def test_leace_changes_least_and_is_the_correction_s_own_for_two_classes() -> None:
    z = (Z == 0).astype(float)
    erased = hf.erase(X, z)
    assert np.square(erased - X).sum() < np.square(hf.erase(X, z, method="projection") - X).sum()
    centred = X - X.mean(0)
    direction, readout = least_erasure(centred.T @ (z - z.mean()), centred.T @ centred / 600)
    np.testing.assert_allclose(erased, X - np.outer(centred @ readout, direction), atol=1e-8)


def test_a_column_of_numbers_and_nothing_to_erase() -> None:
    age = X[:, 0] + RNG.normal(size=600)
    assert abs(np.corrcoef(hf.erase(X, age[:, None])[:, 0], age)[0, 1]) < 1e-6
    np.testing.assert_array_equal(hf.erase(X, np.zeros(600)), X)


@pytest.mark.parametrize(
    ("features", "labels", "options", "error"),
    [
        (X, Z[:5], {}, DataError),
        (X[0], Z, {}, DataError),
        (np.full((2, 2), np.nan), [0, 1], {}, DataError),
        (X, Z, {"method": "leece"}, OptionError),
    ],
)
def test_bad_input_is_named(features: np.ndarray, labels: np.ndarray, options: dict, error: type[Exception]) -> None:
    with pytest.raises(error):
        hf.erase(features, labels, **options)
    eraser = hf.Eraser()
    with pytest.raises(DataError, match="none of"):
        eraser.partial_fit(X, Z)
    np.testing.assert_allclose(eraser.partial_fit(X, Z, classes=[0, 1, 2]).transform(X), hf.erase(X, Z))
    with pytest.raises(DataError, match="have 3 features, the fitted ones 8"):
        eraser.transform(X[:, :3])
    with pytest.raises(DataError, match="have 2 features"):
        hf.Eraser().partial_fit(X[:, :3], Z > 0).partial_fit(X[:, :2], Z > 0)
