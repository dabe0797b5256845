"""Which images are most like those marked: fitted at once on the cached activations after every mark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from hansfree.doctor.held_out import fold_auc
from hansfree.label.marks import NO, UNKNOWN, YES

Why = Literal["spread", "likely", "uncertain", "unlikely"]

FIRST_MARKS = 5  # from here on there is a ranking
_FOLDS = 5
_LEAST = 4  # images with either mark: an AUC of fewer is chance
_PRESUMED = 50  # unmarked images that stand for clean ones, where nobody marked any
_LOOSENESS = 100.0  # scikit-learn's C, for features of unit length on average


@dataclass(frozen=True)
class Choice:
    """An image to show next, and why."""

    image: int
    why: Why


class Ranking:
    """Scores of all images from a few marks.

    A logistic regression on standardised activations, both answers weighing the same. Chosen by simulated marking of
    embedded timestamps, plasters and brightness: where the artifact is clear, signal CAV, ridge and this do equally
    well. Where it is not (plaster, one draw of 10,000 images, 120 marks), the recall of the proposed set is 61 % with
    the signal CAV, 82 to 94 % with ridge, by its penalty, and 99 % with this.

    Args:
        pooled: (images, channels), what CAVs are fitted on.
    """

    def __init__(self, pooled: np.ndarray, *, seed: int = 0) -> None:
        spread = pooled.std(axis=0, dtype=np.float64)
        scale = np.where(spread > 0, spread, 1) * np.sqrt(pooled.shape[1])
        center = pooled.mean(axis=0, dtype=np.float64)
        self._features = ((pooled - center) / scale).astype(np.float32)
        self._seed = seed

    def score(self, marks: np.ndarray) -> np.ndarray | None:
        """Return the score of every image, above 0 where the artifact is likelier than not; None with too few marks."""
        rows, bits = self._samples(marks)
        if not bits.any() or bits.all() or (marks != UNKNOWN).sum() < FIRST_MARKS:
            return None
        model = _fit(self._features[rows], bits)
        weights = model.coef_[0].astype(np.float32)
        scores: np.ndarray = self._features @ weights + np.float32(model.intercept_[0])
        return scores

    def choose(
        self,
        marks: np.ndarray,
        scores: np.ndarray | None,
        *,
        count: int,
        shown: np.ndarray | None = None,
        short: np.ndarray | None = None,
    ) -> list[Choice]:
        """Return unmarked images to mark next: by turns the most likely and the most uncertain.

        Before there is a ranking, images that are as different as possible: a rare artifact lies apart.

        Args:
            shown: images that were passed over; they come last.
            short: images of which more without the artifact are wanted, one bit each: a third of the choice is then
                drawn from the unlikely ones among them. At random: the unlikeliest would not be like the others.
        """
        free = np.flatnonzero(marks == UNKNOWN)
        if shown is not None and not shown[free].all():
            free = free[~shown[free]]
        if scores is None:
            return [Choice(image, "spread") for image in self._spread(marks, free, count)]
        unlikely = np.empty(0, dtype=np.int64)
        if short is not None:
            rng = np.random.default_rng((self._seed, 3, len(free)))
            unlikely = rng.permutation(free[short[free] & (scores[free] < 0)])[: count // 3]
            free, count = np.setdiff1d(free, unlikely), count - len(unlikely)
        likely = free[np.argsort(-scores[free], kind="stable")][: (count + 1) // 2]
        rest = np.setdiff1d(free, likely)
        uncertain = rest[np.argsort(np.abs(scores[rest]), kind="stable")][: count - len(likely)]
        chosen: list[Choice] = []
        for place in range(len(likely)):
            chosen.append(Choice(int(likely[place]), "likely"))
            if place < len(uncertain):
                chosen.append(Choice(int(uncertain[place]), "uncertain"))
        return chosen + [Choice(int(image), "unlikely") for image in unlikely]

    def auc(self, marks: np.ndarray) -> float | None:
        """Return how well marked images are told apart by fits without them; None where either mark is rare."""
        rows = np.flatnonzero(marks != UNKNOWN)
        bits = marks[rows] == YES
        fewest = min(int(bits.sum()), int((~bits).sum()))
        if fewest < _LEAST:
            return None
        folds = min(_FOLDS, fewest)
        features, scores, fold_of = self._features[rows], np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
        splits = StratifiedKFold(folds, shuffle=True, random_state=self._seed).split(features, bits)
        for fold, (train, test) in enumerate(splits):
            scores[test] = _fit(features[train], bits[train]).decision_function(features[test])
            fold_of[test] = fold
        return fold_auc(scores, bits, fold_of)[0]

    def _samples(self, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows to learn from and their bits; artifacts are rare, so unmarked ones may stand for clean."""
        rows = np.flatnonzero(marks != UNKNOWN)
        bits = marks[rows] == YES
        free = np.flatnonzero(marks == UNKNOWN)
        if (marks == NO).any() or not len(free):
            return rows, bits
        drawn = np.random.default_rng((self._seed, 1)).permutation(free)[:_PRESUMED]
        return np.append(rows, drawn), np.append(bits, np.zeros(len(drawn), dtype=bool))

    def _spread(self, marks: np.ndarray, free: np.ndarray, count: int) -> list[int]:
        """Draw images far from the marked ones and from each other, by the rule of k-means++."""
        known = np.flatnonzero(marks != UNKNOWN)
        rng = np.random.default_rng((self._seed, 2, len(known), len(free)))
        features = self._features[free]
        squares = np.einsum("ij,ij->i", features, features)
        distance = np.full(len(free), np.inf)

        def come_near(point: np.ndarray) -> None:
            away = squares - 2 * (features @ point) + point @ point
            np.minimum(distance, np.maximum(away, 0), out=distance)

        for row in known:
            come_near(self._features[row])
        chosen: list[int] = []
        for _ in range(min(count, len(free))):
            distance[chosen] = 0
            total = distance.sum()
            if not chosen and not len(known):
                place = int(rng.integers(len(free)))
            elif total > 0:
                place = int(rng.choice(len(free), p=distance / total))
            else:  # what is left is equal to what was chosen
                place = int(rng.choice(np.setdiff1d(np.arange(len(free)), chosen)))
            chosen.append(place)
            come_near(features[place])
        return [int(free[place]) for place in chosen]


def _fit(features: np.ndarray, bits: np.ndarray) -> LogisticRegression:
    return LogisticRegression(C=_LOOSENESS, class_weight="balanced", max_iter=1000).fit(features, bits)
