"""The repeated fits: bootstrap, disjoint halves, shuffled bits, fewer images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hansfree.cavs import CAV
from hansfree.cavs.class_means import FloatArray
from hansfree.doctor.angles import angle_to_truth, to_degrees
from hansfree.doctor.diagnosis import CurvePoint
from hansfree.doctor.draws import assign_folds, bootstrap_draw, disjoint_draws, shuffle_bits
from hansfree.doctor.held_out import HeldOut, auc, fold_auc, held_out_scores, in_deviations
from hansfree.doctor.refits import Bits, Counts, Refit, make_refit
from hansfree.progress import Progress

_BATCH = 10  # repeats in one matrix product: enough to be quick, few enough for the memory of large sets
_FIRST = 5  # artifact images at the curve's start


@dataclass(frozen=True)
class Effort:
    """How often each test is repeated."""

    bootstraps: int
    halvings: int
    permutations: int
    curve: int
    folds: int = 5


QUICK = Effort(bootstraps=200, halvings=100, permutations=199, curve=40)
SPARING = Effort(bootstraps=40, halvings=20, permutations=39, curve=8)  # a fit of an SVM takes up to 0.1 s


@dataclass(frozen=True)
class Null:
    """What shuffled bits give: AUC and cosine between halves, one of each per shuffle."""

    auc: FloatArray
    cosine: FloatArray

    def p_value(self, auc: float) -> float:
        """Return how often shuffled bits reach an AUC; the true bits count as one shuffle, so that it is never zero."""
        return float((1 + np.sum(self.auc >= auc)) / (1 + len(self.auc)))


def effort_for(cav: CAV) -> Effort:
    """Return how often the tests of a CAV are repeated: as often as its fit is quick."""
    return QUICK if cav.is_mean_difference else SPARING


def count_batches(effort: Effort, n_artifact: int) -> int:
    """Return how many steps all tests together tell their progress."""
    tests = [effort.bootstraps, effort.halvings, effort.permutations, *(effort.curve for _ in _curve_sizes(n_artifact))]
    return sum(math.ceil(repeats / _BATCH) for repeats in tests)


def _curve_sizes(n_artifact: int) -> list[int]:
    """Return the numbers of artifact images on the curve, short of the half."""
    half = n_artifact // 2
    return [_FIRST * 2**k for k in range(half.bit_length()) if _FIRST * 2**k < half]


class Repeats:
    """A fitted CAV's samples, and the tests that fit it again; each test draws from a generator of its own.

    Args:
        paired: The samples are pairs, the clean ones first (`hansfree.doctor.draws`), and are drawn as such.
        effort: How often each test is repeated; None: as often as the CAV's fit is quick.
    """

    def __init__(
        self,
        cav: CAV,
        X: FloatArray,
        has_artifact: Bits,
        *,
        paired: bool = False,
        seed: int,
        effort: Effort | None = None,
        progress: Progress,
    ) -> None:
        self.X, self.has_artifact, self.seed, self.progress = X, has_artifact, seed, progress
        self.paired = paired
        self.direction = cav.direction_
        self.effort = effort or effort_for(cav)
        self.refit: Refit = make_refit(cav, X)
        self.n_artifact = int(has_artifact.sum())
        self.folds = min(self.effort.folds, self.n_artifact, len(X) - self.n_artifact)

    def bootstrap_angles(self) -> FloatArray:
        """Return the angle between the direction and that of each redrawn set, in degrees."""
        cosines = []
        for size, rng in self._batches(self.effort.bootstraps, 1, "bootstrap"):
            draws = np.stack([bootstrap_draw(self.has_artifact, rng, paired=self.paired) for _ in range(size)])
            cosines.append(self.refit(self._bits(size), draws) @ self.direction)
        return to_degrees(np.concatenate(cosines))

    def halves(self) -> tuple[Counts, FloatArray]:
        """Return random halves (repeats, 2, samples) and their unit directions (repeats, 2, channels)."""
        return self._disjoint(self.n_artifact // 2, self.effort.halvings, 2, "halves")

    def held_out(self) -> HeldOut:
        """Return every sample's score along the direction of the folds that it is not in."""
        fold_of = assign_folds(self.has_artifact, self.folds, self._rng(3), paired=self.paired)
        (scores,) = held_out_scores(self.refit, self.X, self._bits(1), fold_of[None])
        value, stderr = fold_auc(scores, self.has_artifact, fold_of)
        standard, separation = in_deviations(scores, self.has_artifact)
        return HeldOut(standard, value, stderr, separation)

    def null(self) -> Null:
        """Return what the same tests say of bits that mean nothing."""
        aucs, cosines = [], []
        for size, rng in self._batches(self.effort.permutations, 4, "shuffled bits"):
            bits = np.stack([shuffle_bits(self.has_artifact, rng, paired=self.paired) for _ in range(size)])
            fold_of = np.stack([assign_folds(some, self.folds, rng, paired=self.paired) for some in bits])
            scores = held_out_scores(self.refit, self.X, bits, fold_of)
            aucs += [fold_auc(*one)[0] for one in zip(scores, bits, fold_of)]
            half = self.n_artifact // 2
            draws = np.concatenate([disjoint_draws(some, half, rng, paired=self.paired) for some in bits])
            first, second = self.refit(np.repeat(bits, 2, axis=0), draws).reshape(size, 2, -1).transpose(1, 0, 2)
            cosines += np.sum(first * second, axis=1).tolist()
        return Null(np.array(aucs), np.array(cosines))

    def curve(self, halves: Counts, directions: FloatArray) -> tuple[CurvePoint, ...]:
        """Return the learning curve up to half of the artifact images; the halves are its last point."""
        points = []
        for place, n in enumerate(_curve_sizes(self.n_artifact)):
            some = self._disjoint(n, self.effort.curve, 10 + place, f"{n} artifact images")
            points.append(self._point(n, *some))
        return (*points, self._point(self.n_artifact // 2, halves, directions))

    def _point(self, n: int, draws: Counts, directions: FloatArray) -> CurvePoint:
        cosines = np.sum(directions[:, 0] * directions[:, 1], axis=1)
        low, high = np.percentile(angle_to_truth(cosines), [2.5, 97.5])
        scores = directions.reshape(-1, self.X.shape[1]) @ self.X.T
        is_new = draws.reshape(-1, len(self.X)) == 0
        seen = [auc(some[new], self.has_artifact[new]) for some, new in zip(scores, is_new)]
        mean = float(cosines.mean())
        return CurvePoint(
            n, float(angle_to_truth(mean)), (float(low), float(high)), float(to_degrees(mean)), float(np.mean(seen))
        )

    def _disjoint(self, n_artifact: int, repeats: int, stage: int, label: str) -> tuple[Counts, FloatArray]:
        all_draws, all_directions = [], []
        for size, rng in self._batches(repeats, stage, label):
            draws = np.concatenate(
                [disjoint_draws(self.has_artifact, n_artifact, rng, paired=self.paired) for _ in range(size)]
            )
            all_directions.append(self.refit(self._bits(2 * size), draws))
            all_draws.append(draws)
        directions = np.concatenate(all_directions).reshape(repeats, 2, -1)
        return np.concatenate(all_draws).reshape(repeats, 2, -1), directions

    def _bits(self, repeats: int) -> Bits:
        return np.repeat(self.has_artifact[None], repeats, axis=0)

    def _rng(self, stage: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stage])

    def _batches(self, repeats: int, stage: int, label: str) -> Iterator[tuple[int, np.random.Generator]]:
        rng = self._rng(stage)
        sizes = [min(_BATCH, repeats - done) for done in range(0, repeats, _BATCH)]
        for size in self.progress(sizes, total=len(sizes), label=f"CAV doctor: {label}"):
            yield size, rng
