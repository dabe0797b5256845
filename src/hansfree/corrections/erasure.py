"""Erase what features say about a label: for people who have only an array."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from hansfree.errors import DataError, check_choice

FloatArray = NDArray[np.float64]
EraseMethod = Literal["leace", "projection"]
_LEAST = 1e-10  # of the largest eigenvalue or singular value: below is rounding


class Eraser(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Removes from features all that a linear classifier could tell a label by; fitted at once or batch by batch.

    Only counts, means and second moments are stored, so `partial_fit` streams through any number of samples.

    Args:
        method: ``"leace"`` (Belrose et al. 2023) changes the features least of all affine maps after which they have no
            covariance with the label; ``"projection"`` takes out the directions of that covariance orthogonally.

    Attributes:
        projection_: (features, features), what is subtracted of a centred sample.
        mean_: (features,), which erasure leaves where it is.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> z = rng.integers(0, 2, 200)
        >>> X = rng.normal(size=(200, 5)) + z[:, None]
        >>> eraser = Eraser()
        >>> for rows in np.split(np.arange(200), 4):
        ...     eraser = eraser.partial_fit(X[rows], z[rows])
        >>> erased = eraser.transform(X)
        >>> bool(np.allclose(erased[z == 1].mean(0), erased[z == 0].mean(0)))
        True
    """

    def __init__(self, method: EraseMethod = "leace") -> None:
        self.method = method

    def fit(self, X: ArrayLike, z: ArrayLike) -> Self:
        """Forget earlier samples, and learn from these.

        Args:
            z: What to erase: one label per sample (classes, also as text), or columns of numbers.
        """
        self.__dict__.pop("count_", None)
        return self.partial_fit(X, z, classes=np.unique(np.asarray(z)) if np.ndim(z) == 1 else None)

    def partial_fit(self, X: ArrayLike, z: ArrayLike, *, classes: ArrayLike | None = None) -> Self:
        """Learn from further samples.

        Args:
            classes: All labels, where the first batch may not have every one; 0 and 1 by default.
        """
        check_choice("method", self.method, EraseMethod)
        features = _as_features(X)
        if len(features) != len(np.asarray(z)) or not len(features):
            raise DataError(f"There are {len(features)} samples and {len(np.asarray(z))} labels; give one label each.")
        is_first = not hasattr(self, "count_")
        known: NDArray[Any] = np.asarray((0, 1) if classes is None else classes) if is_first else self.classes_
        targets, width = _as_columns(np.asarray(z), known), features.shape[1]
        if is_first:
            self.classes_: NDArray[Any] = known
            self.n_features_in_ = width
            self.count_, self.mean_, self._targets = 0, np.zeros(width), np.zeros(targets.shape[1])
            self._scatter, self._crossed = np.zeros((width, width)), np.zeros((width, targets.shape[1]))
        if self._crossed.shape != (width, targets.shape[1]):
            raise DataError(
                f"These samples have {width} features and {targets.shape[1]} label columns, the ones before "
                f"{self.n_features_in_} and {len(self._targets)}."
            )
        n, before = len(features), self.count_
        # Chan, Golub and LeVeque (1979): exact for any cut of the samples into batches.
        mean, target = features.mean(axis=0), targets.mean(axis=0)
        shift, moved = mean - self.mean_, target - self._targets
        centred, weight = features - mean, before * n / (before + n)
        self._scatter += centred.T @ centred + weight * np.outer(shift, shift)
        self._crossed += centred.T @ (targets - target) + weight * np.outer(shift, moved)
        self.count_ = before + n
        self.mean_ = self.mean_ + shift * n / self.count_
        self._targets = self._targets + moved * n / self.count_
        self.__dict__.pop("projection_", None)
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the features without what they say about the label."""
        check_is_fitted(self, "count_")
        if not hasattr(self, "projection_"):
            self.projection_ = self._solve()
        features = _as_features(X)
        if features.shape[1] != self.n_features_in_:
            raise DataError(f"These samples have {features.shape[1]} features, the fitted ones {self.n_features_in_}.")
        return np.asarray(features - (features - self.mean_) @ self.projection_.T)

    def _solve(self) -> FloatArray:
        size = np.linalg.norm(self._crossed)
        if not size > _LEAST * np.sqrt(np.trace(self._scatter)):
            return np.zeros_like(self._scatter)  # there is nothing to erase
        if self.method == "projection":
            left, values, _ = np.linalg.svd(self._crossed, full_matrices=False)
            basis = left[:, values > _LEAST * values[0]]
            return np.asarray(basis @ basis.T)
        values, vectors = np.linalg.eigh(self._scatter)
        kept = values > _LEAST * values[-1]
        roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
        left, found, _ = np.linalg.svd((vectors.T @ self._crossed) / roots[:, None], full_matrices=False)
        basis = left[:, found > _LEAST * found[0]]
        return np.asarray((vectors * roots) @ basis @ basis.T @ (vectors / roots).T)


def _as_features(X: ArrayLike) -> FloatArray:
    features = np.asarray(X, dtype=np.float64)
    if features.ndim != 2:
        raise DataError(f"Features are a table (samples, features), not {features.shape}.")
    if not np.isfinite(features).all():
        raise DataError("Some features are not finite.")
    return features


def _as_columns(z: NDArray[Any], classes: NDArray[Any]) -> FloatArray:
    if z.ndim == 2:
        return z.astype(np.float64)
    if unknown := sorted(set(z.tolist()) - set(classes.tolist())):
        raise DataError(f"The label {unknown[0]!r} is none of {classes.tolist()}: give all as `classes`.")
    return np.asarray(z[:, None] == classes, dtype=np.float64)


def erase(X: ArrayLike, z: ArrayLike, *, method: EraseMethod = "leace") -> FloatArray:
    """Return features without what a linear classifier could tell a label by; see `Eraser` for samples in batches.

    Args:
        z: A label per sample, or columns of numbers.

    Examples:
        >>> z = np.array([0, 1, 0, 1])
        >>> erase(np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [2.0, 3.0]]), z).round(6).tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 3.0], [1.0, 3.0]]
    """
    return Eraser(method).fit(X, z).transform(X)
