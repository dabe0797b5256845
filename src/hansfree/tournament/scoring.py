"""Scores over draws, and differences with intervals that know of both: other images, and other draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from hansfree.metrics.insertion import is_flipped
from hansfree.metrics.intervals import RESAMPLES, TAILS
from hansfree.training import even_weights

Measure = Literal["balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate"]
MEASURES: tuple[Measure, ...] = ("balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate")


@dataclass(frozen=True, eq=False)
class DrawAnswers:
    """The classes that models of several draws name for the test images, ``(draws, images)``."""

    clean: np.ndarray
    biased: np.ndarray

    def hits(self, labels: np.ndarray, measure: Measure) -> np.ndarray:
        """Return what the measure is a mean of, ``(draws, images)``."""
        if measure == "flip_rate":
            return is_flipped(self.clean, self.biased).astype(np.float64)
        said = self.clean if measure == "balanced_accuracy_clean" else self.biased
        return np.asarray(said == labels, dtype=np.float64)

    def score(self, labels: np.ndarray, measure: Measure) -> np.ndarray:
        """Return the measure in every draw."""
        found: np.ndarray = self.hits(labels, measure) @ _weights(labels, measure)
        return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one entrant's model does on one draw."""

    strength: float | None  # None: the method has none
    objection: str  # why the rule would not take it, where the method has no other to offer
    val_clean: float  # balanced accuracy on validation images
    val_biased: float
    clean: list[int]  # the answers on test images
    biased: list[int]
    directions: int = 0  # of its CAV

    @property
    def answers(self) -> DrawAnswers:
        """The answers as those of a single draw."""
        return DrawAnswers(np.array([self.clean]), np.array([self.biased]))


@dataclass(frozen=True, eq=False)
class Match:
    """One entrant on all draws; None where no strength could be taken."""

    outcomes: tuple[Outcome | None, ...]

    @property
    def played(self) -> Mapping[int, Outcome]:
        """The draws that it has a model for."""
        return {number: outcome for number, outcome in enumerate(self.outcomes) if outcome is not None}

    def answers(self, fallback: Match) -> DrawAnswers:
        """Return the answers on all draws; where nothing could be taken, those of the model that is left as it was."""
        taken = [ours or theirs for ours, theirs in zip(self.outcomes, fallback.outcomes)]
        return DrawAnswers(
            np.array([each.clean for each in taken if each]), np.array([each.biased for each in taken if each])
        )


def elect(candidates: Sequence[Match]) -> Match:
    """Return the one in every draw that is best on validation images with the artifact, of those within the budget."""

    def best(outcomes: Sequence[Outcome | None]) -> Outcome | None:
        admissible = [outcome for outcome in outcomes if outcome is not None and not outcome.objection]
        return max(admissible, key=lambda outcome: outcome.val_biased, default=None)

    return Match(tuple(map(best, zip(*(candidate.outcomes for candidate in candidates)))))


@dataclass(frozen=True)
class Comparison:
    """An entrant minus a rival on the same images and draws, with a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 where it is above the rival, -1 where it is below, 0 where the interval holds zero."""
        return int(self.low > 0) - int(self.high < 0)


def compare(
    ours: DrawAnswers, theirs: DrawAnswers, labels: np.ndarray, measure: Measure, *, seed: int = 0
) -> Comparison:
    """Return the mean difference, and where it lies when both draws and images are drawn again.

    Images are drawn within their classes, so that each class keeps its weight.
    """
    difference = ours.hits(labels, measure) - theirs.hits(labels, measure)
    weights = _weights(labels, measure)
    draws, images = _drawn_again(len(difference), tuple(labels.tolist()), seed)
    mean = draws / len(difference) @ difference  # (resamples, images)
    found = np.zeros(RESAMPLES)
    for inside, again in images:
        found += (again * mean[:, inside]).sum(1) * weights[inside[0]]
    low, high = np.percentile(found, TAILS)
    return Comparison(float((difference @ weights).mean()), float(low), float(high))


@lru_cache(maxsize=8)  # a page compares hundreds of times on the images of a few settings
def _drawn_again(
    draws: int, labels: tuple[int, ...], seed: int
) -> tuple[np.ndarray, tuple[tuple[np.ndarray, np.ndarray], ...]]:
    """Return how often each draw, and each image of every class, is taken in every resample."""
    rng = np.random.default_rng(seed)

    def counts(n: int) -> np.ndarray:
        return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.int16)  # small: they are kept

    taken = counts(draws)
    rows = (np.flatnonzero(np.equal(labels, label)) for label in np.unique(labels))
    return taken, tuple((inside, counts(len(inside))) for inside in rows)


def _weights(labels: np.ndarray, measure: Measure) -> np.ndarray:
    """Return what an image counts: all the same, or every class the same."""
    if measure == "flip_rate":
        return np.full(len(labels), 1 / len(labels))
    return even_weights(labels) / len(labels)
