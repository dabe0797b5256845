"""SVM-CAV: the normal of the widest margin between the classes."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from hansfree.cavs.class_means import FloatArray
from hansfree.cavs.penalised import PenalisedCAV


class SVMCAV(PenalisedCAV, name="svm"):
    """The weights of a linear support vector machine: the CAV of Kim et al. (2018).

    Minimises ``sum(hinge losses) + penalty * sum(weights**2) / 2``, where both classes count for half of the losses:
    the grid's value is 1 / C of scikit-learn's ``SVC(kernel="linear", C, class_weight="balanced")``. Without this
    balance (the paper has none) unequal classes that overlap have their minimum at weights of exactly zero, "always the
    larger class", and the direction would be rounding noise. For classes of equal size nothing changes.

    Not ``LinearSVC``, which penalises the intercept and is slow for the hinge loss; the dual over one Gram matrix needs
    seconds for all penalties.

    >>> import numpy as np
    >>> has_artifact = np.arange(40) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(40, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> SVMCAV().fit(activations, has_artifact).score(activations, has_artifact)
    1.0
    """

    def _path(
        self, X: FloatArray, has_artifact: NDArray[np.bool_], penalties: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        gram = X @ X.T
        weights, intercepts = [], []
        with warnings.catch_warnings():
            # Classes that overlap make the weakest penalties converge over millions of tiny steps. Each is compared
            # as it stands after the last one, and a worse solution loses by its held-out score.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for penalty in penalties:
                # The tolerance is in units of the output, which a strong penalty makes tiny: a fixed one would accept
                # the first guess there, and that depends on the order of the samples.
                tol = 1e-3 * min(1.0, float(gram.trace()) / len(gram) / penalty)
                # The solver needs no randomness, but without a state scikit-learn draws from the global generator.
                solver = SVC(
                    kernel="precomputed",
                    C=1 / penalty,
                    class_weight="balanced",
                    tol=tol,
                    max_iter=50_000,
                    random_state=0,
                ).fit(gram, has_artifact)
                weights.append(solver.dual_coef_[0] @ X[solver.support_])
                intercepts.append(solver.intercept_[0])
        return np.array(weights), np.array(intercepts)

    def _loss(self, outputs: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        hinge = np.maximum(0, 1 - np.where(has_artifact, 1.0, -1.0)[:, None] * outputs)
        loss: FloatArray = (hinge[has_artifact].mean(axis=0) + hinge[~has_artifact].mean(axis=0)) / 2
        return loss
