"""Logistic-CAV: logistic regression on the artifact bit."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from hansfree.cavs.class_means import FloatArray
from hansfree.cavs.penalised import PenalisedCAV


class LogisticCAV(PenalisedCAV, name="logistic"):
    """The weights of a logistic regression on the artifact bit.

    Minimises ``sum(log losses) + penalty * sum(weights**2) / 2``: the grid's value is 1 / C of scikit-learn's
    ``LogisticRegression(C)``. (The paper prints no penalty here; without one, separable classes have no solution.)

    >>> import numpy as np
    >>> has_artifact = np.arange(40) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(40, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> LogisticCAV().fit(activations, has_artifact).score(activations, has_artifact)
    1.0
    """

    def _path(
        self, X: FloatArray, has_artifact: NDArray[np.bool_], penalties: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        solver = LogisticRegression(warm_start=True, tol=1e-5, max_iter=200)
        weights, intercepts = [], []
        with warnings.catch_warnings():
            # Of separable classes the weakest penalties drive the weights far out, slowly, along almost one line: the
            # direction is settled long before the solver is. Each is compared as it stands after the last iteration.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for penalty in penalties:
                solver.set_params(C=1 / penalty).fit(X, has_artifact)
                weights.append(solver.coef_[0].copy())
                intercepts.append(solver.intercept_[0])
        return np.array(weights), np.array(intercepts)

    def _loss(self, outputs: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        signs = np.where(has_artifact, 1.0, -1.0)[:, None]
        loss: FloatArray = np.logaddexp(0, -signs * outputs).mean(axis=0)
        return loss
