"""What the CAVs that are a regularised classifier's weights have in common: the penalty's choice."""

from __future__ import annotations

import logging
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from hansfree.cavs.base import CAV
from hansfree.cavs.class_means import ClassMeans, FloatArray
from hansfree.errors import DataError, OptionError

logger = logging.getLogger(__name__)

# Strongest first: each solution is the start of the next weaker one's search.
PENALTIES: FloatArray = np.power(10.0, np.arange(5, -6, -1), dtype=np.float64)


class PenalisedCAV(CAV):
    """A linear classifier's weight vector, its penalty chosen by shuffled stratified cross-validation.

    The penalty is the one of 1e-5, 1e-4 ... 1e5 with the least mean loss on held-out samples, each solver by its own
    loss, as scikit-learn's ``RidgeCV`` and ``LassoCV`` choose. Accuracy and AUC cannot choose here: an artifact that
    shows well scores 1 at every penalty, and the choice would be a matter of how ties are broken. Of penalties that
    are equally good the strongest is taken.

    Features are centred on the training part and the intercept is not penalised. Norms are squared, as in
    scikit-learn's objectives (the paper prints them un-squared).

    Args:
        folds: Parts of the cross-validation; each class needs at least as many samples.
        seed: Of the shuffle before the samples are divided.

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
    def _path(
        self, X: FloatArray, has_artifact: NDArray[np.bool_], penalties: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return weights (penalties, channels) and intercepts (penalties,); ``X`` comes centred.

        A sample is taken to carry the artifact where ``X @ weights + intercept > 0``.
        """

    @abstractmethod
    def _loss(self, outputs: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        """Return the solver's mean loss per column of outputs (samples, penalties), without the penalty."""

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
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

    def _held_out_loss(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        losses = []
        folds = StratifiedKFold(self.folds, shuffle=True, random_state=self.seed)
        for train, test in folds.split(X, has_artifact):
            center = X[train].mean(axis=0)
            weights, intercepts = self._path(X[train] - center, has_artifact[train], PENALTIES)
            losses.append(self._loss((X[test] - center) @ weights.T + intercepts, has_artifact[test]))
        mean: FloatArray = np.mean(losses, axis=0)
        return mean

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

    def _check_folds(self, has_artifact: NDArray[np.bool_]) -> None:
        if not isinstance(self.folds, (int, np.integer)) or self.folds < 2:
            raise OptionError(f"folds must be a whole number of at least 2, but it is {self.folds!r}.")
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise OptionError(f"seed must be a whole number of at least 0, but it is {self.seed!r}.")
        fewest = int(min(has_artifact.sum(), (~has_artifact).sum()))
        if fewest < self.folds:
            which = "with" if has_artifact.sum() == fewest else "without"
            raise DataError(
                f"{type(self).__name__} needs at least one sample of each class per fold, but there are {self.folds} "
                f"folds and n_samples={fewest} {which} the artifact. Give more samples, set folds to at most "
                f"{fewest} (and at least 2), or use SignalCAV, which has no folds."
            )


def squared_loss(outputs: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
    """Return the mean squared residual of a regression on the artifact bit whose border is at one half."""
    loss: FloatArray = np.square(outputs + 0.5 - has_artifact[:, None]).mean(axis=0)
    return loss
