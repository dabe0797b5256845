"""Signal-CAV: the covariance of activations and artifact bit, which is the difference of two means."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from hansfree.cavs.base import CAV, ClassMeans, FloatArray
from hansfree.errors import DataError


class SignalCAV(CAV, name="signal"):
    """The direction in which the activations move with the artifact bit: the paper's choice.

    Unlike a classifier's weights it does not bend towards distractors, which help to separate the classes but are not
    the artifact. It streams: ``partial_fit`` takes batches, ``merge`` joins the work of several machines, and both
    remember one mean per class and nothing else.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> has_artifact = np.arange(100) % 2 == 0
    >>> activations = rng.normal(size=(100, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> cav = SignalCAV().fit(activations, has_artifact)
    >>> abs(cav.directions_).round(1).tolist()
    [[0.0, 1.0, 0.0]]
    >>> batches = SignalCAV().partial_fit(activations[:30], has_artifact[:30])
    >>> batches = batches.merge(SignalCAV().partial_fit(activations[30:], has_artifact[30:]))
    >>> bool(np.allclose(batches.directions_, cav.directions_))
    True
    """

    is_mean_difference: ClassVar[bool] = True

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        bit = has_artifact.astype(np.float64)
        direction: FloatArray = (bit - bit.mean()) @ X
        return direction

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Add a batch; a batch may hold one class only, the direction exists once both were seen.

        Args:
            X: Activations of the batch.
            y: Labels of the batch.
            classes: Both labels, as other scikit-learn estimators want them in the first call; not needed here.
        """
        is_first = not hasattr(self, "class_mean_")
        features, labels = self._validated(X, y, reset=is_first)
        batch = ClassMeans.of(features, labels, classes)
        self._adopt(batch if is_first else self._means() + batch)
        return self

    def merge(self, other: SignalCAV) -> SignalCAV:
        """Return the CAV of this one's and the other's samples together; both stay as they are."""
        for cav in (self, other):
            check_is_fitted(cav, "class_mean_", msg="This %(name)s has seen no samples yet, so it cannot be merged.")
        if self.n_features_in_ != other.n_features_in_:
            raise DataError(
                f"Only CAVs of the same layer can be merged, but one has {self.n_features_in_} features and the other "
                f"{other.n_features_in_}."
            )
        merged: SignalCAV = clone(self)
        merged.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            merged.feature_names_in_ = self.feature_names_in_
        merged._adopt(self._means() + other._means())
        return merged

    def _means(self) -> ClassMeans:
        return ClassMeans(self.classes_, self.class_count_, self.class_mean_)

    def _adopt(self, means: ClassMeans) -> None:
        """Take the direction from the means where they define one; else remember them and wait for more samples."""
        if means.both_seen and np.any(means.difference):
            self._settle(means.difference, means)
        else:
            self._remember(means)
            self.__dict__.pop("directions_", None)
