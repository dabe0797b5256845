"""Ridge-CAV: least squares on the artifact bit with a squared penalty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from hansfree.cavs.class_means import FloatArray
from hansfree.cavs.penalised import PenalisedCAV, squared_loss


class RidgeCAV(PenalisedCAV, name="ridge"):
    """The weights of a ridge regression on the artifact bit (0 or 1), the border at one half.

    Minimises ``sum(residuals**2) + penalty * sum(weights**2)``: the grid's value is scikit-learn's ``Ridge(alpha)``.
    One eigendecomposition serves all penalties.

    >>> import numpy as np
    >>> has_artifact = np.arange(40) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(40, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> RidgeCAV().fit(activations, has_artifact).score(activations, has_artifact)
    1.0
    """

    def _path(
        self, X: FloatArray, has_artifact: NDArray[np.bool_], penalties: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        bit = has_artifact.astype(np.float64)
        centred_bit = bit - bit.mean()
        # The smaller of the two Gram matrices has the same non-zero eigenvalues, and costs a third of an SVD.
        is_wide = X.shape[1] > X.shape[0]
        eigenvalues, vectors = linalg.eigh(X @ X.T if is_wide else X.T @ X)
        # Below this an eigenvalue is rounding noise; kept, it would outweigh a small penalty.
        is_real = eigenvalues > len(eigenvalues) * np.finfo(np.float64).eps * max(eigenvalues[-1], 0)
        eigenvalues, vectors = eigenvalues[is_real], vectors[:, is_real]
        filters = 1 / (eigenvalues + penalties[:, None])
        if is_wide:
            weights = (filters * (vectors.T @ centred_bit)) @ vectors.T @ X
        else:
            weights = (filters * (vectors.T @ (X.T @ centred_bit))) @ vectors.T
        return weights, np.full(len(penalties), bit.mean() - 0.5)

    def _loss(self, outputs: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        return squared_loss(outputs, has_artifact)
