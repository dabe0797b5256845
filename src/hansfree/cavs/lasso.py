"""Lasso-CAV: least squares on the artifact bit with a penalty that leaves few channels."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lasso_path

from hansfree.cavs.class_means import FloatArray
from hansfree.cavs.penalised import PenalisedCAV, squared_loss


class LassoCAV(PenalisedCAV, name="lasso"):
    """The weights of a lasso regression on the artifact bit (0 or 1), the border at one half.

    Minimises ``sum(residuals**2) / (2 * samples) + penalty * sum(abs(weights))``: the grid's value is scikit-learn's
    ``Lasso(alpha)``. Where the chosen penalty leaves no channel at all, the strongest that leaves one is taken.

    >>> import numpy as np
    >>> has_artifact = np.arange(40) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(40, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> LassoCAV().fit(activations, has_artifact).score(activations, has_artifact)
    1.0
    """

    def _path(
        self, X: FloatArray, has_artifact: NDArray[np.bool_], penalties: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        bit = has_artifact.astype(np.float64)
        with warnings.catch_warnings():
            # The weakest penalties of the grid would need minutes for digits that do not change the held-out order;
            # each is compared as it stands after the last iteration, so nothing is hidden by silence.
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Coordinates are taken in turn, yet without a state scikit-learn draws from the global generator.
            given = {"tol": 1e-3, "max_iter": 300, "random_state": 0}
            _, weights, _ = lasso_path(np.asfortranarray(X), bit - bit.mean(), alphas=penalties, **given)
        return weights.T, np.full(len(penalties), bit.mean() - 0.5)

    def _loss(self, outputs: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        return squared_loss(outputs, has_artifact)
