"""Resample a CAV: bootstrap, halves, permutations, learning curve, held-out AUC."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from hansfree._internal.progress import Progress, silent
from hansfree._internal.statistics import auc
from hansfree.cavs import CAV
from hansfree.cavs.base import FloatArray
from hansfree.cavs.diagnostics.diagnosis import CurvePoint
from hansfree.cavs.regularised import PENALTIES, PenalisedCAV

Bits = NDArray[np.bool_]
Counts = NDArray[np.int64]
# (repeats, samples) labels and how often each sample counts -> (repeats, channels) unit directions. A direction that a
# repeat cannot define is all zero: it agrees with nothing.
Refit = Callable[[Bits, Counts], FloatArray]
ODDS = 100.0  # how much likelier a suspect label's score must be in the other class
LEAST_SEPARATION = 1.5  # standard deviations between the medians; below, scores cannot show a wrong artifact label
_BATCH = 10  # repeats in one matrix product: enough to be quick, few enough for the memory of large sets
_FIRST = 5  # artifact images at the curve's start


def make_refit(cav: CAV, X: FloatArray) -> Refit:
    """Return what fits ``cav`` again; ``X`` must be centred.

    A difference of means is one matrix product for all repeats. A penalised CAV uses the penalty selected on all
    samples: copies of one image on both sides of a cross-validation would favour the weakest.
    """
    if cav.is_mean_difference:
        return lambda labels, counts: _unit(_contrasts(labels, counts) @ X)
    return lambda labels, counts: _unit(np.stack([_fit_once(cav, X, *each) for each in zip(labels, counts)]))


def _fit_once(cav: CAV, X: FloatArray, has_artifact: Bits, times: Counts) -> FloatArray:
    rows = np.repeat(np.arange(len(X)), times)
    samples, labels = X[rows], has_artifact[rows]
    difference: FloatArray = samples[labels].mean(axis=0) - samples[~labels].mean(axis=0)
    if not np.any(difference):
        return np.zeros(X.shape[1])
    if not isinstance(cav, PenalisedCAV):
        fitted: FloatArray = clone(cav).fit(samples, labels).direction_
        return fitted
    for penalty in PENALTIES[cav.best_penalty_ >= PENALTIES]:  # the selected one, or the next weaker with weights
        direction: FloatArray = cav._path(samples - samples.mean(axis=0), labels, np.array([penalty]))[0][0]
        if np.any(direction):
            return direction if direction @ difference >= 0 else -direction
    return np.zeros(X.shape[1])


def _contrasts(has_artifact: Bits, counts: Counts) -> FloatArray:
    """Return the weights of the samples in mean(artifact) - mean(clean), a row per repeat."""
    with_artifact, clean = counts * has_artifact, counts * ~has_artifact
    towards = with_artifact / with_artifact.sum(axis=1, keepdims=True)
    return np.asarray(towards - clean / clean.sum(axis=1, keepdims=True))


def _unit(directions: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    return np.asarray(directions / np.where(lengths > 0, lengths, 1.0))


def bootstrap_draw(has_artifact: Bits, rng: np.random.Generator, *, paired: bool = False) -> Counts:
    """Return how often each sample is drawn, (samples,): as many of each class as there are, with repetition."""
    counts = np.zeros(len(has_artifact), dtype=np.int64)
    for members in _drawn(has_artifact, paired):
        counts[members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)))
    return _for_both_halves(counts) if paired else counts


def disjoint_draws(has_artifact: Bits, n_artifact: int, rng: np.random.Generator, *, paired: bool = False) -> Counts:
    """Return two draws (2, samples) that share no sample, each with ``n_artifact`` artifact images.

    Clean images are drawn in their own proportion, so that all noise falls with the same root of ``n_artifact``.
    """
    counts = np.zeros((2, len(has_artifact)), dtype=np.int64)
    for members in reversed(_drawn(has_artifact, paired)):
        n = min(max(round(n_artifact * len(members) / int(has_artifact.sum())), 1), len(members) // 2)
        shuffled = rng.permutation(members)
        counts[0, shuffled[:n]] = 1
        counts[1, shuffled[n : 2 * n]] = 1
    return _for_both_halves(counts) if paired else counts


def assign_folds(has_artifact: Bits, folds: int, rng: np.random.Generator, *, paired: bool = False) -> Counts:
    """Return the fold of each sample, (samples,); each class is spread evenly over the folds."""
    fold_of = np.empty(len(has_artifact), dtype=np.int64)
    for members in _drawn(has_artifact, paired):
        fold_of[rng.permutation(members)] = np.arange(len(members)) % folds
    return _for_both_halves(fold_of) if paired else fold_of


def shuffle_bits(has_artifact: Bits, rng: np.random.Generator, *, paired: bool = False) -> Bits:
    """Return permuted labels; of pairs, which half has the artifact is permuted."""
    if not paired:
        return rng.permutation(has_artifact)
    is_swapped = rng.random(len(has_artifact) // 2) < 0.5
    return np.asarray(has_artifact ^ np.tile(is_swapped, 2))


def _drawn(has_artifact: Bits, paired: bool) -> tuple[Counts, ...]:
    """Return the rows that are drawn, group by group: clean and artifact images, or the first halves of the pairs."""
    if paired:
        return (np.arange(len(has_artifact) // 2),)
    return np.flatnonzero(~has_artifact), np.flatnonzero(has_artifact)


def _for_both_halves(numbers: Counts) -> Counts:
    return np.tile(numbers[..., : numbers.shape[-1] // 2], 2)


def to_degrees(cosines: ArrayLike) -> FloatArray:
    """Return the angle of each cosine; rounding may have carried a cosine past one."""
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))))


def angle_to_truth(between: ArrayLike) -> FloatArray:
    """Return the expected angle to the true direction, given the cosine between two fits on disjoint samples."""
    return to_degrees(np.sqrt(np.clip(between, 0.0, 1.0)))


def of_both_halves(between: ArrayLike) -> FloatArray:
    """Return the cosine between two fits on twice the samples (Spearman-Brown)."""
    cosines = np.clip(np.asarray(between, dtype=np.float64), 0.0, 1.0)
    return np.asarray(2 * cosines / (1 + cosines))


def images_for(target: float, *, fewer: int, more: int, angle: float) -> float | None:
    """Return how many images of the rarer kind bring the angle from ``angle`` to ``target`` degrees, None if none can.

    Squared noise is in proportion to ``1 / fewer + 1 / more``: only the rarer kind grows, until it equals the other;
    beyond that, both. At 90 degrees there is nothing to extrapolate from.
    """
    if angle >= 89.0:
        return None
    factor = np.tan(np.radians(angle)) ** 2 / np.tan(np.radians(target)) ** 2
    together = (1 / fewer + 1 / more) / factor
    return float(2 / together if together < 2 / more else 1 / (together - 1 / more))


@dataclass(frozen=True)
class HeldOut:
    """Held-out scores in standard deviations from the border, positive towards the artifact, and their AUC."""

    scores: FloatArray
    auc: float
    stderr: float
    separation: float  # between the medians of the two classes

    @property
    def separates_labels(self) -> bool:
        """Whether the classes lie so far apart that a sample on the wrong side means something."""
        return self.separation >= LEAST_SEPARATION

    def odds(self, has_artifact: Bits) -> FloatArray:
        """Return for each sample how much likelier its score is in the other class (normal curves of equal width)."""
        past_border = np.where(has_artifact, -self.scores, self.scores)
        # Far scores would overflow; beyond e**50 odds say nothing more.
        return np.asarray(np.exp(np.clip(self.separation * past_border, -50.0, 50.0)))


def held_out_scores(refit: Refit, X: FloatArray, has_artifact: Bits, fold_of: Counts) -> FloatArray:
    """Return each sample's coordinate along the direction of the other folds; all arrays are (repeats, samples)."""
    folds = np.arange(fold_of.max() + 1)
    is_held_out = fold_of[:, None, :] == folds[:, None]  # (repeats, folds, samples)
    training = (~is_held_out).astype(np.int64).reshape(-1, len(X))
    directions = refit(np.repeat(has_artifact, len(folds), axis=0), training).reshape(*is_held_out.shape[:2], -1)
    return np.asarray(np.take_along_axis(directions @ X.T, fold_of[:, None, :], axis=1)[:, 0])


def in_deviations(scores: FloatArray, has_artifact: Bits) -> tuple[FloatArray, float]:
    """Return the scores in standard deviations from the border between the medians, and the medians' distance.

    Medians and the median deviation, so that wrong labels do not move the scale that finds them.
    """
    clean, artifact = scores[~has_artifact], scores[has_artifact]
    low, high = np.median(clean), np.median(artifact)
    # 1.4826 makes the median deviation of a normal sample its standard deviation; both classes count alike.
    width = 1.4826 * np.sqrt((np.median(abs(clean - low)) ** 2 + np.median(abs(artifact - high)) ** 2) / 2)
    if width == 0:  # more than half of each class has one and the same score
        width = float(np.sqrt((clean.var() + artifact.var()) / 2)) or float(np.ptp(scores)) or 1.0
    return (scores - (low + high) / 2) / width, float((high - low) / width)


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
    """What shuffled labels give: AUC and cosine between halves, one of each per shuffle."""

    auc: FloatArray
    cosine: FloatArray

    def p_value(self, auc: float) -> float:
        """Return how often shuffled labels reach an AUC; the true ones count as one shuffle, so it is never zero."""
        return float((1 + np.sum(self.auc >= auc)) / (1 + len(self.auc)))


@dataclass(eq=False)
class Repeats:
    """A fitted CAV with its centred samples, and the tests that fit it again, each with its own random generator."""

    cav: CAV
    X: FloatArray
    has_artifact: Bits
    _: KW_ONLY
    seed: int
    paired: bool = False  # the samples are pairs, the clean ones first, and are drawn as such
    tests: Effort | None = None  # None: as many as the CAV's fit is quick
    progress: Progress = silent

    def __post_init__(self) -> None:
        self.effort = self.tests or (QUICK if self.cav.is_mean_difference else SPARING)
        self.refit = make_refit(self.cav, self.X)
        self.n_artifact = int(self.has_artifact.sum())
        self.folds = min(self.effort.folds, self.n_artifact, len(self.X) - self.n_artifact)

    def count_batches(self) -> int:
        """Return the number of progress steps of all tests together."""
        tests = self.effort
        repeats = [tests.bootstraps, tests.halvings, tests.permutations, *(tests.curve for _ in self._curve_sizes())]
        return sum(math.ceil(each / _BATCH) for each in repeats)

    def bootstrap_angles(self) -> FloatArray:
        """Return the angle between the direction and that of each resampled set, in degrees."""
        cosines = []
        for size, rng in self._batches(self.effort.bootstraps, 1, "bootstrap"):
            draws = np.stack([bootstrap_draw(self.has_artifact, rng, paired=self.paired) for _ in range(size)])
            cosines.append(self.refit(self._labels(size), draws) @ self.cav.direction_)
        return to_degrees(np.concatenate(cosines))

    def halves(self) -> tuple[Counts, FloatArray]:
        """Return random halves (repeats, 2, samples) and their unit directions (repeats, 2, channels)."""
        return self._disjoint(self.n_artifact // 2, self.effort.halvings, 2, "halves")

    def held_out(self) -> HeldOut:
        """Return every sample's score along the direction of the folds that it is not in."""
        fold_of = assign_folds(self.has_artifact, self.folds, self._rng(3), paired=self.paired)
        (scores,) = held_out_scores(self.refit, self.X, self._labels(1), fold_of[None])
        found = auc(scores, self.has_artifact, groups=fold_of)  # only scores along the same direction are compared
        standard, separation = in_deviations(scores, self.has_artifact)
        return HeldOut(standard, found.value, found.stderr, separation)

    def null(self) -> Null:
        """Return the null distribution: the same tests with permuted labels."""
        aucs, cosines = [], []
        for size, rng in self._batches(self.effort.permutations, 4, "shuffled labels"):
            labels = np.stack([shuffle_bits(self.has_artifact, rng, paired=self.paired) for _ in range(size)])
            fold_of = np.stack([assign_folds(some, self.folds, rng, paired=self.paired) for some in labels])
            scores = held_out_scores(self.refit, self.X, labels, fold_of)
            aucs += [auc(some, own, groups=folds).value for some, own, folds in zip(scores, labels, fold_of)]
            half = self.n_artifact // 2
            draws = np.concatenate([disjoint_draws(some, half, rng, paired=self.paired) for some in labels])
            first, second = self.refit(np.repeat(labels, 2, axis=0), draws).reshape(size, 2, -1).transpose(1, 0, 2)
            cosines += np.sum(first * second, axis=1).tolist()
        return Null(np.array(aucs), np.array(cosines))

    def curve(self, directions: FloatArray) -> tuple[CurvePoint, ...]:
        """Return the learning curve up to half of the artifact images; the halves' directions are its last point."""
        points = []
        for place, n in enumerate(self._curve_sizes()):
            points.append((n, self._disjoint(n, self.effort.curve, 10 + place, f"{n} artifact images")[1]))
        curve = []
        for n, pairs in (*points, (self.n_artifact // 2, directions)):
            cosines = np.sum(pairs[:, 0] * pairs[:, 1], axis=1)
            low, high = np.percentile(angle_to_truth(cosines), [2.5, 97.5])
            curve.append(CurvePoint(n, float(angle_to_truth(cosines.mean())), (float(low), float(high))))
        return tuple(curve)

    def _curve_sizes(self) -> list[int]:
        """Return the numbers of artifact images on the curve, short of the half."""
        half = self.n_artifact // 2
        return [_FIRST * 2**k for k in range(half.bit_length()) if _FIRST * 2**k < half]

    def _disjoint(self, n_artifact: int, repeats: int, stage: int, label: str) -> tuple[Counts, FloatArray]:
        all_draws, all_directions = [], []
        for size, rng in self._batches(repeats, stage, label):
            draws = [disjoint_draws(self.has_artifact, n_artifact, rng, paired=self.paired) for _ in range(size)]
            all_draws += draws
            all_directions.append(self.refit(self._labels(2 * size), np.concatenate(draws)))
        return np.stack(all_draws), np.concatenate(all_directions).reshape(repeats, 2, -1)

    def _labels(self, repeats: int) -> Bits:
        return np.repeat(self.has_artifact[None], repeats, axis=0)

    def _rng(self, stage: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stage])

    def _batches(self, repeats: int, stage: int, label: str) -> Iterator[tuple[int, np.random.Generator]]:
        rng = self._rng(stage)
        sizes = [min(_BATCH, repeats - done) for done in range(0, repeats, _BATCH)]
        for size in self.progress(sizes, total=len(sizes), label=f"CAV diagnostics: {label}"):
            yield size, rng
