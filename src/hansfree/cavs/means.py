"""CAVs that are differences of means: between samples (`SignalCAV`) and over pairs (`PairCAV`)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from typing_extensions import Self

from hansfree.cavs.base import CAV, ClassMeans, FloatArray, samples_of_pairs
from hansfree.errors import DataError, check_count

MAX_DIRECTIONS = 10  # tried where held-out pairs decide how many
LEAST_GAIN = 0.01  # share of the squared change that a further direction has to explain
_RANK = 1e-12  # of the largest squared size: below, a direction is rounding noise


class SignalCAV(CAV, name="signal"):
    """The direction in which the activations move with the artifact label: the paper's choice.

    Unlike a classifier's weights it does not bend towards distractors, which help to separate the classes but are not
    the artifact.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> has_artifact = np.arange(100) % 2 == 0
    >>> activations = rng.normal(size=(100, 3)) + np.outer(has_artifact, [0.0, 8.0, 0.0])
    >>> abs(SignalCAV().fit(activations, has_artifact).directions_).round(1).tolist()
    [[0.0, 1.0, 0.0]]
    """

    is_mean_difference: ClassVar[bool] = True

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        return _covariance_with(has_artifact, X)


def _covariance_with(has_artifact: NDArray[np.bool_], X: FloatArray) -> FloatArray:
    label = has_artifact.astype(np.float64)
    return np.asarray((label - label.mean()) @ X)


class PairCAV(CAV, name="pair"):
    """The mean change over pairs of the same image without and with the artifact, and the main ways it varies.

    The first direction is the mean change. Further ones are the leading directions of the remaining changes, as long as
    each explains at least one percent of the squared change of held-out pairs. ``fit`` takes samples that are not
    paired, and finds the first only.

    Args:
        count: Number of directions; None chooses it by held-out pairs, up to ten.
        folds: Parts of the cross-validation that chooses the number.

    Attributes:
        change_size_: (k,), root mean square of the changes along each direction; after ``fit_pairs`` only.
        explained_: (tried,), share of the squared change of held-out pairs that 1, 2, ... directions explain.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> clean = rng.normal(size=(60, 4))
    >>> change = np.outer(rng.normal(size=60), [0.0, 0.0, 1.0, 0.0]) + [0.0, 3.0, 0.0, 0.0]
    >>> cav = PairCAV().fit_pairs(clean, clean + change)
    >>> abs(cav.directions_).round(0).tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    """

    rank = 1  # after the CAVs that need no pairs
    needs_pairs: ClassVar[bool] = True
    is_mean_difference: ClassVar[bool] = True

    change_size_: FloatArray
    explained_: FloatArray

    def __init__(self, *, count: int | None = None, folds: int = 5, seed: int = 0) -> None:
        self.count = count
        self.folds = folds
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the mean change from samples that are not paired; for several directions use ``fit_pairs``."""
        if self.count not in (None, 1):
            raise DataError(f"{self.count} directions need pairs, not single samples: use fit_pairs.")
        return super().fit(X, y)

    def fit_pairs(self, clean: ArrayLike, biased: ArrayLike) -> Self:
        """Find the directions of the changes: clean and biased are (pairs, channels), in the same order."""
        super().fit(*samples_of_pairs(clean, biased))  # checks all, and finds the mean change
        changes = np.asarray(biased, dtype=np.float64) - np.asarray(clean, dtype=np.float64)
        if not np.any(changes):
            raise DataError(f"The artifact changes the activations of none of these {len(changes)} images.")
        count = self.count if self.count is not None else self._choose_count(changes)
        directions = leading_directions(changes, count)
        if len(directions) < count:
            raise DataError(
                f"The changes of {len(changes)} pairs have {len(directions)} directions, not {count}: ask for fewer."
            )
        self._settle(directions, ClassMeans(self.classes_, self.class_count_, self.class_mean_))
        self.change_size_ = np.sqrt(np.square(changes @ self.directions_.T).mean(axis=0))
        return self

    @property
    def size_(self) -> FloatArray:
        """The root mean square of the changes along each direction; without pairs, the way between the means."""
        self._check_fitted()
        return self.change_size_ if hasattr(self, "change_size_") else self.scale_

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        check_count("count", 1 if self.count is None else self.count, least=1)
        check_count("folds", self.folds, least=2)
        check_count("seed", self.seed, least=0)
        for name in ("change_size_", "explained_"):  # of pairs that it was fitted on before
            self.__dict__.pop(name, None)
        return _covariance_with(has_artifact, X)

    def _choose_count(self, changes: FloatArray) -> int:
        """Return the last number of directions whose last one still explains enough of held-out changes."""
        if len(changes) < self.folds:
            raise DataError(
                f"The number of directions is chosen by {self.folds} folds, but there are n_samples={len(changes)} "
                "pairs. Give more pairs, fewer folds, or the number itself."
            )
        fold_of = np.random.default_rng(self.seed).permutation(len(changes)) % self.folds
        explained = np.zeros(min(MAX_DIRECTIONS, changes.shape[1]))
        for fold in range(self.folds):
            learned, held_out = changes[fold_of != fold], changes[fold_of == fold]
            directions = leading_directions(learned, len(explained))
            along = np.zeros(len(explained))  # a direction that the other folds do not have explains nothing
            along[: len(directions)] = np.square(held_out @ directions.T).sum(axis=0)
            explained += along.cumsum()
        self.explained_ = explained / np.square(changes).sum()
        is_enough = np.diff(self.explained_) >= LEAST_GAIN
        return 1 + int(np.argmin([*is_enough, False]))


def leading_directions(changes: FloatArray, count: int) -> FloatArray:
    """Return the direction of the mean change and then those of the rest, largest first: up to ``count`` rows.

    Fewer, where the changes do not have as many. Not centred: how large a change is counts, not how far it varies.
    """
    mean = changes.mean(axis=0)
    length = float(np.linalg.norm(mean))
    if length == 0:
        raise DataError(f"The changes of {len(changes)} pairs cancel each other: their mean has no direction.")
    first = np.asarray(mean / length)
    if count == 1:
        return first[None]
    rest = changes - np.outer(changes @ first, first)
    products, channels = rest.T @ rest, changes.shape[1]
    sizes, vectors = eigh(products, subset_by_index=(max(0, channels - count + 1), channels - 1))
    is_real = sizes > _RANK * np.square(changes).sum()
    further = vectors[:, is_real][:, ::-1].T
    # An eigenvector has no sign of its own, and these are orthogonal to the mean: the largest entry decides.
    largest = np.take_along_axis(further, np.abs(further).argmax(axis=1)[:, None], axis=1)
    return np.concatenate([first[None], further * np.sign(largest)])
