"""Run an entry on a resample, score its predictions, and compare entries over resamples and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from torch import nn

from benchmarks.comparison.entries import BALANCED_CLEAN_TRAINED, ComparisonEntry
from benchmarks.comparison.resamples import Resample
from hansfree._internal.statistics import RESAMPLES, TAILS
from hansfree.activations import (
    Activations,
    FeatureSpec,
    Pooling,
    compute_features,
    cut_at,
    find_pairs,
    join,
    pool,
)
from hansfree.cavs import CAV
from hansfree.corrections import Need, Vanilla, fit_path
from hansfree.corrections.selection import BalancedRule, Validator, has_enough
from hansfree.corrections.training import Heads, balanced_weights
from hansfree.errors import OptionError
from hansfree.evaluation.evaluate import State, held_out_features, judge_head
from hansfree.evaluation.results import CLEAN_TRAINED, ORIGINAL
from hansfree.metrics import MIN_GROUP, predict_classes
from hansfree.metrics.effects import is_flipped
from hansfree.models import predict_logits

Measure = Literal["balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate"]

MEASURES: tuple[Measure, ...] = ("balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate")


@dataclass(frozen=True, eq=False)
class Answers:
    """Predicted classes of the test images, ``(resamples, images)``."""

    clean: np.ndarray
    biased: np.ndarray

    def hits(self, labels: np.ndarray, measure: Measure) -> np.ndarray:
        """Return the per-image values whose weighted mean is the measure, ``(resamples, images)``."""
        if measure == "flip_rate":
            return is_flipped(self.clean, self.biased).astype(np.float64)
        said = self.clean if measure == "balanced_accuracy_clean" else self.biased
        return np.asarray(said == labels, dtype=np.float64)

    def score(self, labels: np.ndarray, measure: Measure) -> np.ndarray:
        """Return the measure per resample."""
        found: np.ndarray = self.hits(labels, measure) @ _weights(labels, measure)
        return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The model of one entry on one resample."""

    strength: float | None  # None: the method has none
    rejection: str  # why the rule rejects the model of a method without strengths; empty: admissible
    val_clean: float  # balanced accuracy on validation images
    val_biased: float
    clean: list[int]  # predicted classes of the test images
    biased: list[int]
    directions: int = 0  # of its CAV

    @property
    def answers(self) -> Answers:
        """The predictions as those of a single resample."""
        return Answers(np.array([self.clean]), np.array([self.biased]))


@dataclass(frozen=True, eq=False)
class EntryResult:
    """One entry on all resamples; None where no strength was admissible."""

    outcomes: tuple[Outcome | None, ...]

    @property
    def completed(self) -> Mapping[int, Outcome]:
        """The outcomes by resample, without those that have no model."""
        return {number: outcome for number, outcome in enumerate(self.outcomes) if outcome is not None}

    def answers(self, fallback: EntryResult) -> Answers:
        """Return the predictions on all resamples; those of ``fallback`` where no strength was admissible."""
        taken = [ours or theirs for ours, theirs in zip(self.outcomes, fallback.outcomes)]
        return Answers(
            np.array([each.clean for each in taken if each]), np.array([each.biased for each in taken if each])
        )


def pick_best(candidates: Sequence[EntryResult]) -> EntryResult:
    """Return per resample the admissible candidate with the best validation score on biased images."""

    def best(outcomes: Sequence[Outcome | None]) -> Outcome | None:
        admissible = [outcome for outcome in outcomes if outcome is not None and not outcome.rejection]
        return max(admissible, key=lambda outcome: outcome.val_biased, default=None)

    return EntryResult(tuple(map(best, zip(*(candidate.outcomes for candidate in candidates)))))


@dataclass(frozen=True)
class Comparison:
    """The paired difference between two entries, with a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes zero, else 0."""
        return int(self.low > 0) - int(self.high < 0)


def compare(ours: Answers, theirs: Answers, labels: np.ndarray, measure: Measure, *, seed: int = 0) -> Comparison:
    """Return the mean difference with its interval, bootstrapped over resamples and over images within classes."""
    difference = ours.hits(labels, measure) - theirs.hits(labels, measure)
    weights = _weights(labels, measure)
    resamples, images = _bootstrap_counts(len(difference), tuple(labels.tolist()), seed)
    mean = resamples / len(difference) @ difference  # (resamples, images)
    found = np.zeros(RESAMPLES)
    for inside, again in images:
        found += (again * mean[:, inside]).sum(1) * weights[inside[0]]
    low, high = np.percentile(found, TAILS)
    return Comparison(float((difference @ weights).mean()), float(low), float(high))


@lru_cache(maxsize=8)  # a page makes hundreds of comparisons on few sets of images
def _bootstrap_counts(
    resamples: int, labels: tuple[int, ...], seed: int
) -> tuple[np.ndarray, tuple[tuple[np.ndarray, np.ndarray], ...]]:
    """Return the bootstrap counts of every resample, and of the images of every class."""
    rng = np.random.default_rng(seed)

    def counts(n: int) -> np.ndarray:
        return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.int16)  # small: cached

    taken = counts(resamples)
    rows = (np.flatnonzero(np.equal(labels, label)) for label in np.unique(labels))
    return taken, tuple((inside, counts(len(inside))) for inside in rows)


def _weights(labels: np.ndarray, measure: Measure) -> np.ndarray:
    """Return the weight of every image: uniform for flips, balanced over classes for accuracies."""
    if measure == "flip_rate":
        return np.full(len(labels), 1 / len(labels))
    return balanced_weights(labels) / len(labels)


def run_entry(entry: ComparisonEntry, resample: Resample) -> Outcome | None:
    """Correct the model of a resample; None where no strength is admissible."""
    train = train_for(entry, resample)
    cav = fit_cav(entry, resample) if entry.has_direction else None
    method = entry.make(cav, resample.tuning)
    edit = method.edit(train)
    validator = make_validator(resample, edit)
    rule, original = BalancedRule(), make_validator(resample)(Heads(resample.cut, 1, resample.tuning.device))[0]
    strengths = method.info.strengths if method.info.has_strength else (0.0,)
    heads = method.train(resample.cut, train, strengths, watch=validator)
    path = fit_path(heads, rule.selector(original, has_strength=method.info.has_strength))
    if path.best is None or path.final is None:
        return None
    seen = path.final
    clean, biased = answers(resample, path.best.state, edit)
    return Outcome(
        strength=path.best.strength if method.info.has_strength else None,
        rejection=rule.rejection(seen, original),
        val_clean=seen.clean.value,
        val_biased=float("nan") if seen.biased is None else seen.biased.value,
        clean=clean.tolist(),
        biased=biased.tolist(),
        directions=0 if cav is None else len(cav.directions_),
    )


def baseline_model(name: str, resample: Resample) -> nn.Module:
    """Return the original model, the reference, or the reference with a converged, balanced head."""
    if name == ORIGINAL:
        return resample.model
    if name == CLEAN_TRAINED:
        return resample.reference
    if name != BALANCED_CLEAN_TRAINED:
        raise OptionError(f"{name!r} is not a baseline.")
    cut = cut_at(resample.reference, resample.clean, train=resample.corrected)
    refit = Vanilla(tuning=replace(resample.tuning, optimizer="converged", balanced=True))
    (solved,) = refit.train(cut, resample.clean, [refit.strength])
    return cut.model_with(solved.state, resample.reference)


def score_model(resample: Resample, model: nn.Module) -> Outcome:
    """Score a baseline model."""
    data = resample.data
    if model is resample.model or resample.kind != "retrained":
        cut = cut_at(model, resample.test.clean)
        heads = Heads(cut, 1, resample.tuning.device)
        sets = (resample.val.clean, resample.val.biased, resample.test.clean, resample.test.biased)
        logits = [heads.logits(compute_features(cut, images))[0].numpy() for images in sets]
    else:  # its trunk is not cached
        logits = [
            predict_logits(model, images)
            for images in (data.val_clean, data.val_biased, data.test_clean, data.test_biased)
        ]
    val_clean, val_biased, clean, biased = (predict_classes(each.astype(np.float64)) for each in logits)
    known = has_enough(data.val_clean.labels, MIN_GROUP)
    labels = np.asarray(data.val_clean.labels)[known]
    seen = Answers(val_clean[None, known], val_biased[None, known])
    return Outcome(
        strength=None,
        rejection="",
        val_clean=float(seen.score(labels, "balanced_accuracy_clean")[0]),
        val_biased=float(seen.score(labels, "balanced_accuracy_biased")[0]),
        clean=clean.tolist(),
        biased=biased.tolist(),
    )


def fit_cav(entry: ComparisonEntry, resample: Resample) -> CAV:
    """Fit the CAV of an entry to the training images of the resample."""

    def pooled(images: Activations) -> np.ndarray:
        return np.asarray(_repooled(images, entry.pooling).pooled)

    if entry.direction == "signal":
        has_artifact = np.asarray(resample.train.has_artifact)[resample.cav_rows]
        return entry.cav().fit(pooled(resample.train)[resample.cav_rows], has_artifact)
    return entry.cav().fit_pairs(pooled(resample.pairs.clean), pooled(resample.pairs.biased))


def answers(resample: Resample, state: State, edit: nn.Module | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted classes of a head for the test images without and with the artifact."""
    images = held_out_features(
        resample.cut, resample.test.clean, resample.test.biased, biased_class=resample.biased_class, edit=edit
    )
    evidence = judge_head(resample.cut, state, images, device=resample.tuning.device)
    return predict_classes(evidence.logits_clean), predict_classes(evidence.logits_biased)


def train_for(entry: ComparisonEntry, resample: Resample) -> Activations:
    """Return the training images of an entry, with pairs appended where the method uses them."""
    train = resample.train
    if Need.PAIRS in entry.kind.info.needs:
        train = join(train, resample.pairs.biased)
        find_pairs(train)  # raises where there are none
    return _repooled(train, entry.pooling)


def _repooled(images: Activations, pooling: Pooling) -> Activations:
    """Return the same activations, pooled in another way for the CAV."""
    if images.pooling == pooling:
        return images
    pooled = np.concatenate([pool(layer, pooling).numpy() for layer, *_ in images.stream()])
    return replace(images, pooled=pooled, pooling=pooling)


def make_validator(resample: Resample, edit: nn.Module | None = None) -> Validator:
    """Return the validator of a run on the validation images of the resample."""
    clean, biased = resample.val_features
    if edit is not None:
        clean, biased = (
            compute_features(resample.cut, images, FeatureSpec(edit=edit))
            for images in (resample.val.clean, resample.val.biased)
        )
    return Validator(
        clean, biased, resample.biased_class, resample.original_predictions, inserted=True, least=MIN_GROUP
    )
