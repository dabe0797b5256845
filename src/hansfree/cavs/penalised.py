"""What the CAVs that are a regularised classifier's weights have in common: the penalty's choice."""

from __future__ import annotations

import logging
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.model_selection import StratifiedKFold

from hansfree.cavs.base import CAV
from hansfree.cavs.class_means import ClassMeans, FloatArray
from hansfree.errors import DataError, OptionError

logger = logging.getLogger(__name__)

# Strongest first: each solution is the start of the next weaker one's search.
PENALTIES: FloatArray = np.power(10.0, np.arange(5, -6, -1), dtype=np.float64)


class PenalisedCAV(CAV):
    """A linear classifier's weight vector, its penalty chosen by shuffled stratified cross-validation.

    The penalty is the one of 1e-5, 1e-4 ... 1e5 with the best mean AUC on held-out samples. AUC, not accuracy, for all
    solvers: artifacts are often rare, where accuracy rewards "never", and a direction is judged by the order it gives,
    not by where a solver happens to put the border. Of penalties that are equally good the strongest is taken: it
    leans least on noise, and well separated classes, where many score 1, are thus no handicap for these solvers.

    Features are centred on the training part and the intercept is not penalised. Norms are squared, as in
    scikit-learn's objectives (the paper prints them un-squared).

    Args:
        folds: Parts of the cross-validation; each class needs at least as many samples.
        seed: Of the shuffle before the samples are divided.

    Attributes:
        best_penalty_: The chosen penalty.
        cv_auc_: (11,), mean held-out AUC of each penalty, strongest (1e5) first.
        solver_intercept_: The solver's own intercept for centred features, in units of the unit direction.
    """

    best_penalty_: float
    cv_auc_: FloatArray
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

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        self._check_folds(has_artifact)
        self.cv_auc_ = self._held_out_auc(X, has_artifact)
        # Means over folds that differ by rounding only are equal.
        best = int(np.argmax(self.cv_auc_ >= self.cv_auc_.max() - 1e-9))
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

    def _held_out_auc(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        scores = []
        folds = StratifiedKFold(self.folds, shuffle=True, random_state=self.seed)
        for train, test in folds.split(X, has_artifact):
            center = X[train].mean(axis=0)
            weights, _ = self._path(X[train] - center, has_artifact[train], PENALTIES)
            scores.append(_auc((X[test] - center) @ weights.T, has_artifact[test]))
        mean: FloatArray = np.mean(scores, axis=0)
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


def _auc(scores: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
    """Return the AUC of each column, ties by half; all at once, where scikit-learn's function takes one at a time."""
    n_artifact, n_clean = has_artifact.sum(), (~has_artifact).sum()
    ranks = rankdata(scores, axis=0)[has_artifact].sum(axis=0)
    auc: FloatArray = (ranks - n_artifact * (n_artifact + 1) / 2) / (n_artifact * n_clean)
    return auc
