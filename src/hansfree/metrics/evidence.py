"""What a metric sees: the answers of one model on images without and with the artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hansfree.errors import DataError

Condition = Literal["clean", "biased"]  # the images without, and with the artifact
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NO_PREDICTION = -1  # stands where the logits name no class; equal to no label


def predict_classes(logits: Floats) -> Integers:
    """Return the class of the largest logit per row, ``NO_PREDICTION`` where a NaN or infinity leaves none.

    ``argmax`` alone would name a class for a row of NaN, and a broken model would look like a constant one. A logit
    of minus infinity beside finite ones is an answer (never this class), not a fault.
    """
    return np.where(np.isfinite(logits.max(axis=1)), logits.argmax(axis=1), NO_PREDICTION).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What one model did on one split: the same images without and with the artifact.

    Where the artifact is in the scenes and cannot be put in, the biased images are others than the clean ones, with
    labels of their own; there may be none.

    Logits and derivatives need not be finite: a broken model has to be scored too, and honestly.
    """

    labels: Integers  # (n,)
    biased_class: int
    logits_clean: Floats  # (n, classes)
    logits_biased: Floats  # (n, classes): the same images, artifact inserted
    labels_biased: Integers | None = None  # (b,): the biased images are others; logits_biased is (b, classes)
    derivatives: Floats | None = None  # (m,): of the biased class's logit along unit h, summed over positions
    n_positions: int = 1  # positions of the layer's map: the paper's sensitivity averages over them
    position_signs: Integers | None = None  # (m, 3): positions with positive, negative, zero derivative
    relevance: Floats | None = None  # (r,): share of absolute relevance on the artifact's mask, NaN if undefined

    def __post_init__(self) -> None:
        """Convert to float64 and int64, and check every shape."""
        self._store("labels", _integers("labels", self.labels, ndim=1))
        self._store("logits_clean", _floats("logits_clean", self.logits_clean, ndim=2))
        self._store("logits_biased", _floats("logits_biased", self.logits_biased, ndim=2))
        if self.labels_biased is not None:
            self._store("labels_biased", _integers("labels_biased", self.labels_biased, ndim=1))
        self._check_logits()
        if self.n_positions < 1:
            raise DataError(f"n_positions is {self.n_positions}; a layer's map has at least 1 position.")
        if self.derivatives is not None:
            self._store("derivatives", _floats("derivatives", self.derivatives, ndim=1))
        if self.position_signs is not None:
            self._store("position_signs", _integers("position_signs", self.position_signs, ndim=2))
            self._check_position_signs(self.position_signs)
        if self.relevance is not None:
            self._store("relevance", _floats("relevance", self.relevance, ndim=1))

    @property
    def n_classes(self) -> int:
        """Number of classes that the model tells apart."""
        return int(self.logits_clean.shape[1])

    @property
    def is_paired(self) -> bool:
        """Whether the biased images are the clean ones with the artifact inserted."""
        return self.labels_biased is None

    def labels_of(self, condition: Condition) -> Integers:
        """Return the labels of the images without or with the artifact."""
        return self.labels if condition == "clean" or self.labels_biased is None else self.labels_biased

    def logits(self, condition: Condition) -> Floats:
        """Return the logits of the images without (``"clean"``) or with the artifact (``"biased"``)."""
        return self.logits_clean if condition == "clean" else self.logits_biased

    def is_correct(self, condition: Condition) -> NDArray[np.bool_]:
        """Return per image whether the predicted class is the label; an image without prediction is wrong."""
        return np.equal(predict_classes(self.logits(condition)), self.labels_of(condition))

    def _store(self, field: str, value: NDArray[Any]) -> None:
        object.__setattr__(self, field, value)  # the dataclass is frozen; this is its constructor's last step

    def _check_logits(self) -> None:
        n, n_biased = len(self.labels), len(self.labels_of("biased"))
        if (len(self.logits_clean), self.logits_biased.shape) != (n, (n_biased, self.n_classes)):
            raise DataError(
                f"{n} labels need logits_clean of shape ({n}, classes) and logits_biased of ({n_biased}, classes); "
                f"given {self.logits_clean.shape} and {self.logits_biased.shape}."
            )
        if n == 0 or self.n_classes < 2:
            raise DataError(
                f"Logits of shape {self.logits_clean.shape} and {self.logits_biased.shape} leave nothing to score."
            )
        labels = np.concatenate([self.labels, self.labels_of("biased")])
        if labels.min() < 0 or labels.max() >= self.n_classes:
            raise DataError(
                f"Labels run from {labels.min()} to {labels.max()}, "
                f"but {self.n_classes} logits allow 0 to {self.n_classes - 1}."
            )
        check_biased_class(self.biased_class, self.n_classes)

    def _check_position_signs(self, signs: Integers) -> None:
        if self.derivatives is None:
            raise DataError("position_signs count the positions behind derivatives, which are not given.")
        if signs.shape != (len(self.derivatives), 3):
            raise DataError(
                f"{len(self.derivatives)} derivatives need position_signs of shape ({len(self.derivatives)}, 3); "
                f"given {signs.shape}."
            )
        # A position whose derivative is NaN has no sign, so a row may count fewer positions than there are.
        if len(signs) and (signs.min() < 0 or signs.sum(axis=1).max() > self.n_positions):
            raise DataError(f"position_signs must be counts of at most n_positions={self.n_positions} per image.")


def check_biased_class(given: int, n_classes: int) -> None:
    """Refuse a class that the model does not have."""
    if not 0 <= given < n_classes:
        raise DataError(f"The biased class is {given}, but {n_classes} logits allow 0 to {n_classes - 1}.")


def _floats(name: str, values: ArrayLike, *, ndim: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    _check_ndim(name, array, ndim)
    return array


def _integers(name: str, values: ArrayLike, *, ndim: int) -> Integers:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{name} must be integers; given {array.dtype}.")
    _check_ndim(name, array, ndim)
    return array.astype(np.int64)


def _check_ndim(name: str, array: NDArray[Any], ndim: int) -> None:
    if array.ndim != ndim:
        raise DataError(f"{name} must have {ndim} dimension(s); given shape {array.shape}.")
