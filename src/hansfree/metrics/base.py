"""Predictions, the evidence that metrics see, and the base class of metrics."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hansfree._internal.registry import Registered
from hansfree._internal.statistics import Floats, Integers
from hansfree.errors import DataError, UndefinedMetricError

logger = logging.getLogger(__name__)
Condition = Literal["clean", "biased"]  # the images without, and with the artifact
NO_PREDICTION = -1  # stands where the logits name no class; equal to no label


def predict_classes(logits: Floats) -> Integers:
    """Return the class of the largest logit per row, ``NO_PREDICTION`` where a NaN or infinity leaves none.

    ``argmax`` alone would name a class for a row of NaN. A logit of minus infinity beside finite ones is no fault.
    """
    return np.where(np.isfinite(logits.max(axis=1)), logits.argmax(axis=1), NO_PREDICTION).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What one model did on one split: the same images without and with the artifact.

    A natural artifact cannot be inserted: the biased images are then others, with labels of their own; there may be
    none. Logits and derivatives need not be finite: a broken model is scored too.
    """

    labels: Integers  # (n,)
    biased_class: int
    logits_clean: Floats  # (n, classes)
    logits_biased: Floats  # (n, classes): the same images, artifact inserted
    labels_biased: Integers | None = None  # (b,): the biased images are others; logits_biased is (b, classes)
    derivatives: Floats | None = None  # (m,): of the biased class's logit along unit h, summed over positions
    n_positions: int = 1  # positions of the layer's map: the paper's sensitivity averages over them
    position_signs: Integers | None = None  # (m, 3): positions with positive, negative, zero derivative
    position_sizes: Floats | None = None  # (m,): mean size of the derivatives at single positions
    relevance: Floats | None = None  # (r,): share of absolute relevance on the artifact's mask, NaN if undefined

    def __post_init__(self) -> None:
        """Convert to float64 and int64, and check labels and logits."""
        for each in fields(self):
            if each.name not in ("biased_class", "n_positions") and (given := getattr(self, each.name)) is not None:
                kind = np.int64 if each.name in _INTEGERS else np.float64
                object.__setattr__(self, each.name, np.asarray(given, dtype=kind))  # the dataclass is frozen
        self._check_logits()

    @property
    def n_classes(self) -> int:
        """Number of classes of the model."""
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


def check_biased_class(given: int, n_classes: int) -> None:
    """Refuse a class that the model does not have."""
    if not 0 <= given < n_classes:
        raise DataError(f"The biased class is {given}, but {n_classes} logits allow 0 to {n_classes - 1}.")


_INTEGERS = ("labels", "labels_biased", "position_signs")
MIN_GROUP = 25  # below this a score is not available: the standard error of an accuracy reaches 10 points


@dataclass(frozen=True)
class Score:
    """One number with its standard error; ``n`` counts images, never positions."""

    metric: str
    value: float
    stderr: float
    n: int
    group: int | None = None  # the class that it is about; None: all images
    artifact: str | None = None  # "without" or "with" where only such images count


@dataclass(frozen=True)
class NotAvailable:
    """A score that too few images leave unknown: how many there are, and what would be needed."""

    metric: str
    n: int
    reason: str
    group: int | None = None  # the class that it is about; None: all images

    def __str__(self) -> str:
        return f"n/a (n = {self.n})"


class Metric(Registered, ABC):
    """One number that says how well a model does without the artifact; a member writes `compute`.

    Standard errors are over images. A proportion has sqrt(p (1 - p) / n), which is 0 at p = 0 or 1: "less than about
    1 / n", not "certain". A mean has its sample deviation over sqrt(n), and is undefined for one image. Natural
    artifacts may be rare: no number is given for fewer than `MIN_GROUP` images (`unavailable`).
    """

    kind = "metric"
    ideal: ClassVar[float]  # the best value: tables mark the score nearest to it
    needs: ClassVar[tuple[str, ...]] = ()  # optional fields of the evidence that must be given
    is_per_class: ClassVar[bool] = False  # `compute_all` gives a score for each class, not one for all images
    label: ClassVar[str]  # the column's head
    description: ClassVar[str]  # one sentence for the reader of a table

    @abstractmethod
    def compute(self, evidence: Evidence) -> Score:
        """Return the score, or raise `UndefinedMetricError` where the evidence cannot define it."""

    def compute_all(self, evidence: Evidence) -> list[Score]:
        """Return every score that this metric has to give: one, for most."""
        return [self.compute(evidence)]

    def unavailable(self, labels: Integers, labels_biased: Integers | None) -> list[NotAvailable]:
        """Return the scores that are not available for lack of images.

        Args:
            labels_biased: The labels of the images with the artifact; None where it was inserted into the clean ones.
        """
        return []

    def too_few_images(self, n: int) -> list[NotAvailable]:
        """Return itself where the images with the artifact are fewer than `MIN_GROUP`."""
        reason = f"at least {MIN_GROUP} images with the artifact are needed, and there are {n}"
        return [] if n >= MIN_GROUP else [NotAvailable(self.name, n, reason)]

    def required(self, evidence: Evidence, field: str) -> NDArray[Any]:
        """Return an optional field of the evidence, or raise where it is not given."""
        values: NDArray[Any] | None = getattr(evidence, field)
        if values is None:
            raise UndefinedMetricError(f"{self.name} needs {field}, which the evidence does not hold.")
        return values

    def check_available(self, evidence: Evidence) -> None:
        """Raise where too few images leave the score unavailable."""
        for found in self.unavailable(evidence.labels, evidence.labels_biased):
            if found.group is None:
                raise UndefinedMetricError(f"{self.name} is not available: {found.reason}.")

    def score(
        self, value: float, stderr: float, n: int, *, group: int | None = None, artifact: str | None = None
    ) -> Score:
        """Return a score under this metric's name."""
        return Score(self.name, float(value), float(stderr), int(n), group, artifact)

    def proportion(self, hits: NDArray[np.bool_], *, group: int | None = None, artifact: str | None = None) -> Score:
        """Return the share of images that are hits."""
        if hits.size == 0:
            raise UndefinedMetricError(f"{self.name} needs at least 1 image, and none is given.")
        share = hits.mean()
        return self.score(share, np.sqrt(share * (1 - share) / hits.size), hits.size, group=group, artifact=artifact)

    def mean(self, values: Floats) -> Score:
        """Return the mean over images."""
        if values.size < 2:
            raise UndefinedMetricError(f"{self.name} needs at least 2 images for a standard error, not {values.size}.")
        if n_broken := np.sum(~np.isfinite(values)):
            raise UndefinedMetricError(f"{self.name} is undefined: {n_broken} values are not finite.")
        return self.score(values.mean(), values.std(ddof=1) / np.sqrt(values.size), values.size)


def compute_scores(evidence: Evidence, *, per_class: bool = True) -> list[Score]:
    """Return the scores of all registered metrics that the evidence can define, in the order of registration.

    Args:
        per_class: Also those of every class; False for the many models of a strength path, of which one is kept.
    """
    scores: list[Score] = []
    for metric in Metric.members().values():
        if any(getattr(evidence, field) is None for field in metric.needs) or (metric.is_per_class and not per_class):
            continue
        try:
            scores += metric().compute_all(evidence)
        except UndefinedMetricError as error:
            logger.info("%s is left out: %s", metric.name, error)
    return scores


def find_unavailable(labels: Integers, labels_biased: Integers | None) -> list[NotAvailable]:
    """Return the scores that too few test images leave unknown (`Metric.unavailable`), whatever the model."""
    return [found for metric in Metric.members().values() for found in metric().unavailable(labels, labels_biased)]


def large_classes(labels: Integers) -> Integers:
    """Return the classes with at least `MIN_GROUP` images."""
    classes, counts = np.unique(labels, return_counts=True)
    return np.asarray(classes[counts >= MIN_GROUP], dtype=np.int64)
