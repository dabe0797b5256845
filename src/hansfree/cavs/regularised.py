"""CAVs that are the weights of a regularised linear model."""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, lasso_path
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from hansfree.cavs.base import CAV, ClassMeans, FloatArray
from hansfree.errors import DataError, check_count

logger = logging.getLogger(__name__)
Bits = NDArray[np.bool_]
Path = tuple[FloatArray, FloatArray]  # weights (penalties, channels) and intercepts (penalties,)
# Strongest first: each solution is the start of the next weaker one's search.
PENALTIES: FloatArray = np.power(10.0, np.arange(5, -6, -1), dtype=np.float64)


class PenalisedCAV(CAV):
    """A linear classifier's weight vector, its penalty chosen by shuffled stratified cross-validation.

    The penalty is the one of 1e-5, 1e-4 ... 1e5 with the least mean held-out loss of the solver, the strongest of
    equals. Accuracy and AUC cannot choose: an artifact that shows well scores 1 at every penalty. Features are centred
    on the training part and the intercept is not penalised. Norms are squared, as in scikit-learn's objectives (the
    paper prints them un-squared).

    Args:
        folds: Parts of the cross-validation; each class needs at least as many samples.

    Attributes:
        best_penalty_: The chosen penalty.
        cv_loss_: (11,), mean held-out loss of each penalty, strongest (1e5) first.
        solver_intercept_: The solver's own intercept for centred features, in units of the unit direction.
    """

    best_penalty_: float
    cv_loss_: FloatArray
    solver_intercept_: float

    def __init__(self, *, folds: int = 5, seed: int = 0) -> None:
        self.folds = folds
        self.seed = seed

    @abstractmethod
    def _path(self, X: FloatArray, has_artifact: Bits, penalties: FloatArray) -> Path:
        """Return the solutions for centred ``X``: the artifact is where ``X @ weights + intercept > 0``."""

    def _loss(self, outputs: FloatArray, has_artifact: Bits) -> FloatArray:
        """Return the solver's mean loss per column of outputs (samples, penalties), without the penalty.

        By default that of a regression on the artifact label whose border is at one half.
        """
        return np.asarray(np.square(outputs + 0.5 - has_artifact[:, None]).mean(axis=0))

    def _direction(self, X: FloatArray, has_artifact: Bits) -> FloatArray:
        self._check_folds(has_artifact)
        self.cv_loss_ = self._held_out_loss(X, has_artifact)
        # Means over folds that differ by rounding only are equal.
        best = int(np.argmax(self.cv_loss_ <= self.cv_loss_.min() * (1 + 1e-9)))
        weights, intercepts = self._path(X, has_artifact, PENALTIES[: best + 1])
        if not np.any(weights[best]):
            # The lasso may leave nothing: then the strongest penalty that leaves something.
            weights, intercepts = self._path(X, has_artifact, PENALTIES)
            nonzero = np.flatnonzero(np.any(weights != 0, axis=1))
            if not nonzero.size:
                raise DataError(
                    f"{type(self).__name__} sets all weights to zero even at the weakest penalty ({PENALTIES[-1]:g}): "
                    "the features are too small for this grid. Scale them up, for example to unit variance."
                )
            best = int(nonzero[0])
        self.best_penalty_ = float(PENALTIES[best])
        direction: FloatArray = weights[best]
        self.solver_intercept_ = float(intercepts[best] / np.linalg.norm(direction))
        return direction

    def _held_out_loss(self, X: FloatArray, has_artifact: Bits) -> FloatArray:
        losses = []
        folds = StratifiedKFold(self.folds, shuffle=True, random_state=self.seed)
        for train, test in folds.split(X, has_artifact):
            center = X[train].mean(axis=0)
            weights, intercepts = self._path(X[train] - center, has_artifact[train], PENALTIES)
            losses.append(self._loss((X[test] - center) @ weights.T + intercepts, has_artifact[test]))
        return np.asarray(np.mean(losses, axis=0))

    def _settle(self, raw: FloatArray, means: ClassMeans) -> None:
        super()._settle(raw, means)
        if self.direction_ @ raw > 0:
            self.intercept_ = self.solver_intercept_ - float(self.direction_ @ means.center)
        else:
            # The solver's border has the artifact on the other side; the one between the class means stays.
            logger.warning(
                "%s: the class means lie the other way round along the solver's weights than the solver says "
                "(outliers?). The direction was turned towards the artifact's mean.",
                type(self).__name__,
            )

    def _check_folds(self, has_artifact: Bits) -> None:
        check_count("folds", self.folds, least=2)
        check_count("seed", self.seed, least=0)
        fewest = int(min(has_artifact.sum(), (~has_artifact).sum()))
        if fewest < self.folds:
            which = "with" if has_artifact.sum() == fewest else "without"
            raise DataError(
                f"{type(self).__name__} needs at least one sample of each class per fold, but there are {self.folds} "
                f"folds and n_samples={fewest} {which} the artifact. Give more samples, set folds to at most "
                f"{fewest} (and at least 2), or use SignalCAV, which has no folds."
            )


class SVMCAV(PenalisedCAV, name="svm"):
    """The weights of a linear support vector machine: the CAV of Kim et al. (2018).

    Minimises ``sum(hinge losses) + penalty * sum(weights**2) / 2``, where both classes count for half of the losses:
    the grid's value is 1 / C of scikit-learn's ``SVC(kernel="linear", C, class_weight="balanced")``. Without this
    balance (the paper has none) unequal classes that overlap have their minimum at weights of exactly zero. Not
    ``LinearSVC``, which penalises the intercept and is slow for the hinge loss.

    Examples:
        >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]] * 5)
        >>> bool(SVMCAV().fit(X, X[:, 0] > 1).direction_[0] > 0.99)
        True
    """

    def _path(self, X: FloatArray, has_artifact: Bits, penalties: FloatArray) -> Path:
        gram = X @ X.T
        weights, intercepts = [], []
        with warnings.catch_warnings():
            # Classes that overlap converge over millions of tiny steps at the weakest penalties; a worse solution
            # loses by its held-out loss.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for penalty in penalties:
                # The tolerance is in units of the output, which a strong penalty makes tiny: a fixed one would accept
                # the first guess there, and that depends on the order of the samples.
                tol = 1e-3 * min(1.0, float(gram.trace()) / len(gram) / penalty)
                # The solver needs no randomness, but without a state scikit-learn draws from the global generator.
                given = {"kernel": "precomputed", "class_weight": "balanced", "max_iter": 50_000, "random_state": 0}
                solver = SVC(C=1 / penalty, tol=tol, **given).fit(gram, has_artifact)
                weights.append(solver.dual_coef_[0] @ X[solver.support_])
                intercepts.append(solver.intercept_[0])
        return np.array(weights), np.array(intercepts)

    def _loss(self, outputs: FloatArray, has_artifact: Bits) -> FloatArray:
        hinge = np.maximum(0, 1 - np.where(has_artifact, 1.0, -1.0)[:, None] * outputs)
        return np.asarray((hinge[has_artifact].mean(axis=0) + hinge[~has_artifact].mean(axis=0)) / 2)


class RidgeCAV(PenalisedCAV, name="ridge"):
    """The weights of a ridge regression on the artifact label (0 or 1), the border at one half.

    Minimises ``sum(residuals**2) + penalty * sum(weights**2)``: the grid's value is scikit-learn's ``Ridge(alpha)``.
    One eigendecomposition serves all penalties.

    >>> import numpy as np
    >>> has_artifact = np.arange(40) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(40, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> RidgeCAV().fit(activations, has_artifact).score(activations, has_artifact)
    1.0
    """

    def _path(self, X: FloatArray, has_artifact: Bits, penalties: FloatArray) -> Path:
        bit = has_artifact.astype(np.float64)
        centred_bit = bit - bit.mean()
        # The smaller of the two Gram matrices has the same non-zero eigenvalues, and costs a third of an SVD.
        is_wide = X.shape[1] > X.shape[0]
        eigenvalues, vectors = linalg.eigh(X @ X.T if is_wide else X.T @ X)
        # Below this an eigenvalue is rounding noise, which would outweigh a small penalty.
        is_real = eigenvalues > len(eigenvalues) * np.finfo(np.float64).eps * max(eigenvalues[-1], 0)
        eigenvalues, vectors = eigenvalues[is_real], vectors[:, is_real]
        filters = 1 / (eigenvalues + penalties[:, None])
        if is_wide:
            weights = (filters * (vectors.T @ centred_bit)) @ vectors.T @ X
        else:
            weights = (filters * (vectors.T @ (X.T @ centred_bit))) @ vectors.T
        return weights, np.full(len(penalties), bit.mean() - 0.5)


class LassoCAV(PenalisedCAV, name="lasso"):
    """The weights of a lasso regression on the artifact label (0 or 1), the border at one half.

    Minimises ``sum(residuals**2) / (2 * samples) + penalty * sum(abs(weights))``: the grid's value is scikit-learn's
    ``Lasso(alpha)``. Where the chosen penalty leaves no channel at all, the strongest that leaves one is taken.

    Examples:
        >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]] * 5)
        >>> bool(LassoCAV().fit(X, X[:, 0] > 1).direction_[0] > 0.99)
        True
    """

    def _path(self, X: FloatArray, has_artifact: Bits, penalties: FloatArray) -> Path:
        bit = has_artifact.astype(np.float64)
        with warnings.catch_warnings():
            # The weakest penalties would need minutes for digits that do not change the held-out order.
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Coordinates are taken in turn, yet without a state scikit-learn draws from the global generator.
            given = {"tol": 1e-3, "max_iter": 300, "random_state": 0}
            _, weights, _ = lasso_path(np.asfortranarray(X), bit - bit.mean(), alphas=penalties, **given)
        return weights.T, np.full(len(penalties), bit.mean() - 0.5)


class LogisticCAV(PenalisedCAV, name="logistic"):
    """The weights of a logistic regression on the artifact label.

    Minimises ``sum(log losses) + penalty * sum(weights**2) / 2``: the grid's value is 1 / C of scikit-learn's
    ``LogisticRegression(C)``. (The paper prints no penalty here; without one, separable classes have no solution.)

    Examples:
        >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]] * 5)
        >>> bool(LogisticCAV().fit(X, X[:, 0] > 1).direction_[0] > 0.99)
        True
    """

    def _path(self, X: FloatArray, has_artifact: Bits, penalties: FloatArray) -> Path:
        solver = LogisticRegression(warm_start=True, tol=1e-5, max_iter=200)
        weights, intercepts = [], []
        with warnings.catch_warnings():
            # The weakest penalties drive the weights of separable classes far out, along almost one line.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for penalty in penalties:
                solver.set_params(C=1 / penalty).fit(X, has_artifact)
                weights.append(solver.coef_[0].copy())
                intercepts.append(solver.intercept_[0])
        return np.array(weights), np.array(intercepts)

    def _loss(self, outputs: FloatArray, has_artifact: Bits) -> FloatArray:
        signs = np.where(has_artifact, 1.0, -1.0)[:, None]
        return np.asarray(np.logaddexp(0, -signs * outputs).mean(axis=0))
