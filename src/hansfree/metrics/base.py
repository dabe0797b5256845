"""What a metric says (`Score`), what it cannot say (`Unknown`), and the family that all metrics join (`Metric`)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hansfree.errors import UndefinedMetricError
from hansfree.metrics.evidence import Evidence, Floats, Integers
from hansfree.registry import Registered

logger = logging.getLogger(__name__)

MIN_GROUP = 25  # below this the accuracy of a group "cannot be known": its standard error reaches 10 points


@dataclass(frozen=True)
class Score:
    """One number with its standard error; ``n`` counts images, never positions."""

    metric: str
    value: float
    stderr: float
    n: int
    group: str = ""


@dataclass(frozen=True)
class Unknown:
    """A score that too few images leave unknown: how many there are, and what would be needed."""

    metric: str
    n: int
    reason: str
    group: str = ""

    def __str__(self) -> str:
        return f"cannot be known (n = {self.n})"


class Metric(Registered, ABC):
    """One number that says how well a model does without the artifact; a member writes `compute`.

    Standard errors are over images: what would change if other images of the same kind had been drawn. A proportion
    has sqrt(p (1 - p) / n), defined for a single image too; a mean has its sample deviation (n - 1) over sqrt(n), and
    is undefined for one image. At p = 0 or 1 the former is 0, which says "less than about 1 / n", not "certain".

    Where the artifact is in the scenes, images with it may be rare, and no number is given for fewer than `MIN_GROUP`
    of them (`unknown`). Inserted into every test image, they are as many as the clean ones.
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

    def unknown(self, labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
        """Return what cannot be known for lack of images.

        Args:
            labels_biased: The labels of the images with the artifact; None where it was put into the clean ones.
        """
        return []

    def check_known(self, evidence: Evidence) -> None:
        """Raise where too few images leave the score of all of them unknown."""
        for found in self.unknown(evidence.labels, evidence.labels_biased):
            if not found.group:
                raise UndefinedMetricError(f"{self.name} cannot be known: {found.reason}.")

    def score(self, value: float, stderr: float, n: int, *, group: str = "") -> Score:
        """Return a score under this metric's name."""
        return Score(self.name, float(value), float(stderr), int(n), group)

    def proportion(self, hits: NDArray[np.bool_], *, group: str = "") -> Score:
        """Return the share of images that are hits."""
        if hits.size == 0:
            raise UndefinedMetricError(f"{self.name} needs at least 1 image, and none is given.")
        share = hits.mean()
        return self.score(share, np.sqrt(share * (1 - share) / hits.size), hits.size, group=group)

    def mean(self, values: Floats) -> Score:
        """Return the mean over images."""
        if values.size < 2:
            raise UndefinedMetricError(
                f"{self.name} needs at least 2 images for a standard error; {values.size} can be used."
            )
        if not np.isfinite(values).all():
            raise UndefinedMetricError(
                f"{self.name} is undefined: {np.sum(~np.isfinite(values))} values are not finite."
            )
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


def find_unknown(labels: Integers, labels_biased: Integers | None) -> list[Unknown]:
    """Return the scores that too few test images leave unknown, whatever the model; in the order of registration.

    Args:
        labels_biased: The labels of the images with the artifact; None where it was put into the clean ones.
    """
    return [found for metric in Metric.members().values() for found in metric().unknown(labels, labels_biased)]


def few_images(metric: str, n: int) -> list[Unknown]:
    """Return that a score over all images with the artifact is unknown where they are fewer than `MIN_GROUP`."""
    if n >= MIN_GROUP:
        return []
    return [Unknown(metric, n, f"at least {MIN_GROUP} images with the artifact are needed, and there are {n}")]


def few_classes(metric: str, labels: Integers) -> list[Unknown]:
    """Return that a mean over classes is unknown where fewer than two of them have `MIN_GROUP` images."""
    counts = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
    second = int(counts[1]) if counts.size > 1 else 0
    if second >= MIN_GROUP:
        return []
    needed = f"two classes with at least {MIN_GROUP} images with the artifact are needed"
    return [Unknown(metric, second, f"{needed}, and the second largest class has {second}")]


def large_classes(labels: Integers) -> Integers:
    """Return the classes with at least `MIN_GROUP` images."""
    classes, counts = np.unique(labels, return_counts=True)
    return np.asarray(classes[counts >= MIN_GROUP], dtype=np.int64)
