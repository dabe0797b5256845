"""How many samples each class had, and their mean: all that a signal-CAV needs to remember."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hansfree.errors import DataError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ClassMeans:
    """Counts and means of up to two classes; the sum of two of them describes both sets of samples together."""

    classes: NDArray[Any]  # sorted labels; the second is the artifact
    count: NDArray[np.int64]
    mean: FloatArray  # (classes, features)

    @classmethod
    def of(cls, X: FloatArray, y: NDArray[Any], classes: ArrayLike | None = None) -> ClassMeans:
        """Summarise samples; ``classes`` declares labels that these samples need not all show."""
        labels = np.unique(y) if classes is None else np.unique(np.asarray(classes))
        foreign = np.setdiff1d(y, labels)
        if foreign.size:
            raise DataError(f"The label {foreign.tolist()[0]!r} is not one of the classes {labels.tolist()}.")
        _check_at_most_two(labels)
        groups = [X[y == label] for label in labels]
        count = np.array([len(group) for group in groups], dtype=np.int64)
        return cls(labels, count, np.stack([_mean(group) for group in groups]))

    def __add__(self, other: ClassMeans) -> ClassMeans:
        labels = np.union1d(self.classes, other.classes)
        _check_at_most_two(labels)
        mine, theirs = self._aligned(labels), other._aligned(labels)
        count = mine.count + theirs.count
        share = theirs.count / np.maximum(count, 1)
        # A step from one mean to the other, not a ratio of sums: equal means stay equal to the last bit.
        return ClassMeans(labels, count, mine.mean + (theirs.mean - mine.mean) * share[:, None])

    @property
    def both_seen(self) -> bool:
        """Whether there are samples of two classes."""
        return len(self.count) == 2 and bool(np.all(self.count > 0))

    @property
    def difference(self) -> FloatArray:
        """The way from the clean mean to the artifact mean."""
        difference: FloatArray = self.mean[1] - self.mean[0]
        return difference

    @property
    def center(self) -> FloatArray:
        """The mean over all samples of both classes."""
        center: FloatArray = self.mean[0] + self.difference * (self.count[1] / self.count.sum())
        return center

    def _aligned(self, labels: NDArray[Any]) -> ClassMeans:
        """Return the same numbers with a row for each of ``labels``, empty where a label was not seen."""
        count = np.zeros(len(labels), dtype=np.int64)
        mean = np.zeros((len(labels), self.mean.shape[1]))
        rows = np.searchsorted(labels, self.classes)
        count[rows], mean[rows] = self.count, self.mean
        return ClassMeans(labels, count, mean)


def _mean(samples: FloatArray) -> FloatArray:
    """Average around the first sample: exact for constant features, where plain summing leaves rounding noise."""
    if len(samples) == 0:
        return np.zeros(samples.shape[1])
    mean: FloatArray = samples[0] + (samples - samples[0]).mean(axis=0)
    return mean


def _check_at_most_two(labels: NDArray[Any]) -> None:
    if len(labels) > 2:
        raise DataError(
            f"Only binary classification is supported: a CAV tells two classes apart (without and with the artifact), "
            f"but {len(labels)} labels were given: {', '.join(map(repr, labels[:5].tolist()))}"
            f"{', ...' if len(labels) > 5 else ''}."
        )
