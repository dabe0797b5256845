"""Examine a CAV: agreement of solvers, overlap of classes, suspect labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from hansfree._internal.progress import OneBar, Progress, silent
from hansfree.cavs import CAV
from hansfree.cavs.base import FloatArray
from hansfree.cavs.diagnostics.diagnosis import Agreement, CurvePoint, Diagnosis, Level, SuspectLabel, level_of
from hansfree.cavs.diagnostics.findings import Measured, describe, judge
from hansfree.cavs.diagnostics.resampling import (
    ODDS,
    SPARING,
    Bits,
    Counts,
    HeldOut,
    Repeats,
    count_batches,
    effort_for,
    of_both_halves,
)
from hansfree.errors import DataError, OptionError


def new_cav(name: str, has_artifact: Bits, *, seed: int) -> CAV:
    """Return an unfitted CAV whose folds, where it has any, these samples can fill."""
    cav: CAV = CAV.named(name)()
    options = cav.get_params()
    fewest = int(min(has_artifact.sum(), (~has_artifact).sum()))
    own = {"folds": min(options.get("folds", fewest), fewest), "seed": seed}
    cav.set_params(**{option: value for option, value in own.items() if option in options})
    return cav


def compare_solvers(X: FloatArray, has_artifact: Bits, fitted: CAV, *, seed: int, progress: Progress) -> Agreement:
    """Return the cosines between all registered solvers; one that these samples defeat is left out."""
    directions = {}
    members = dict.fromkeys([*CAV.from_marks(), fitted.name])
    for name in progress(members, total=len(members), label="CAV diagnostics: other solvers"):
        try:
            cav = fitted if name == fitted.name else new_cav(name, has_artifact, seed=seed).fit(X, has_artifact)
        except DataError:
            continue  # shown by its absence; the examined CAV itself was fitted before
        directions[name] = cav.direction_
    stacked = np.stack(list(directions.values()))
    cosines = np.clip(stacked @ stacked.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return Agreement(tuple(directions), tuple(tuple(row) for row in cosines.tolist()))


def overlap_with_class(
    X: FloatArray, is_clean: Bits, others: FloatArray, halves: Counts, directions: FloatArray
) -> FloatArray:
    """Return the cosine of each half's direction with that from the other classes to the biased one, (repeats,).

    The clean images of one half are compared with the direction of the other: the noise of the same half would make
    any two directions look opposed.

    Args:
        X: Centred activations.
        is_clean: Which samples are images of the biased class without the artifact.
        others: Activations of clean images of the other classes, centred alike.
        halves: (repeats, 2, samples), which samples each half has.
        directions: (repeats, 2, channels), unit, of each half.
    """
    clean = (halves * is_clean).astype(np.float64)
    n_clean = clean.sum(axis=2, keepdims=True)
    class_directions = (clean / np.maximum(n_clean, 1)) @ X - others.mean(axis=0)
    class_directions *= n_clean > 0  # a half without the class agrees with nothing
    lengths = np.linalg.norm(class_directions, axis=2, keepdims=True)
    class_directions /= np.where(lengths > 0, lengths, 1.0)
    cosines: FloatArray = np.mean(np.sum(directions[:, ::-1] * class_directions, axis=2), axis=1)
    return cosines


LEAST = 4  # images with and without the artifact: two for each half


def diagnose_cav(
    X: ArrayLike,
    has_artifact: ArrayLike,
    *,
    cav: str = "signal",
    paired: bool = False,
    in_class: ArrayLike | None = None,
    others: ArrayLike | None = None,
    ids: Sequence[int | str] | None = None,
    unmarked: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Diagnosis:
    """Check whether the direction of these samples can be trusted, without any ground truth.

    Samples are taken as independent: where several images show one patient, give one of each. See `LIMIT`.

    Args:
        X: Pooled activations (samples, channels) of the images of the biased class, with and without the artifact.
        has_artifact: One label per sample.
        cav: Name of the CAV. Of several directions the first is examined.
        paired: The samples are pairs, first all clean ones and then the same images with the artifact; whole pairs are
            resampled.
        in_class: Which samples are of the biased class; None: all of them.
        others: Pooled activations of clean images of the other classes, for the overlap with the class.
        ids: Names of the samples; their row by default.
        unmarked: How many images could still be labelled by a person: the verdict says how many to label.
        seed: Of all resamples.
        progress: Shows how far the repeated fits have come.

    >>> import numpy as np
    >>> has_artifact = np.arange(120) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(120, 5)) + np.outer(has_artifact, [0, 8, 0, 0, 0])
    >>> diagnose_cav(activations, has_artifact).level
    'good'
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise OptionError(f"seed must be a whole number of at least 0, but it is {seed!r}.")
    features, bits = _checked(X, has_artifact)
    names = _checked_ids(ids, len(features))
    if paired and not np.array_equal(bits, np.arange(len(bits)) >= len(bits) / 2):
        raise DataError("Pairs are all clean samples and then, in the same order, the same ones with the artifact.")
    inside = np.ones(len(bits), dtype=bool) if in_class is None else _checked_bits(in_class, len(bits), what="class")
    if min(np.sum(inside & bits), np.sum(inside & ~bits)) < LEAST:  # nothing can be said of the class
        inside, others = np.ones(len(bits), dtype=bool), None
    center = features.mean(axis=0)
    foreign = None if others is None else _checked_others(others, features.shape[1]) - center
    features = features - center
    fitted = new_cav(cav, bits, seed=int(seed)).fit(features, bits)

    steps = count_batches(effort_for(fitted), int(bits.sum())) + len(CAV.from_marks())
    bar = OneBar(progress, total=steps, label="CAV diagnostics")
    repeats = Repeats(fitted, features, bits, paired=paired, seed=int(seed), progress=bar)
    halves, directions = repeats.halves()
    held_out = repeats.held_out()
    measured = Measured(
        cav=cav,
        n_artifact=int(bits.sum()),
        n_clean=int((~bits).sum()),
        half_cosines=np.sum(directions[:, 0] * directions[:, 1], axis=1),
        bootstrap_angles=repeats.bootstrap_angles(),
        held_out=held_out,
        null=repeats.null(),
        agreement=compare_solvers(features[inside], bits[inside], fitted, seed=int(seed), progress=bar),
        overlap=None if foreign is None else overlap_with_class(features, ~bits & inside, foreign, halves, directions),
        suspect_labels=() if paired else _suspect_labels(names, bits, held_out),
        is_paired=paired,
    )
    findings = describe(measured)
    level, verdict = judge(measured, findings, unmarked=unmarked)
    whole = CurvePoint(measured.n_artifact, measured.expected_error, measured.error_interval)
    curve = (*repeats.curve(directions), whole)
    bar.finish()
    return Diagnosis(
        cav=cav,
        n_artifact=measured.n_artifact,
        n_clean=measured.n_clean,
        level=level,
        verdict=verdict,
        findings=findings,
        curve=curve,
        suspect_labels=measured.suspect_labels,
        agreement=measured.agreement,
        scores=tuple(held_out.scores.tolist()),
        has_artifact=tuple(bits.tolist()),
    )


def _suspect_labels(names: Sequence[int | str], bits: Bits, held_out: HeldOut) -> tuple[SuspectLabel, ...]:
    """Return the samples on the wrong side, the most suspicious first; none where the classes overlap too much."""
    if not held_out.separates_labels:
        return ()
    odds = held_out.odds(bits)
    rows = sorted(np.flatnonzero(odds >= ODDS).tolist(), key=lambda row: -float(odds[row]))
    return tuple(
        SuspectLabel(names[row], bool(bits[row]), float(held_out.scores[row]), float(odds[row])) for row in rows
    )


def _checked(X: ArrayLike, has_artifact: ArrayLike) -> tuple[FloatArray, Bits]:
    features = _numbers(X)
    bits = _checked_bits(has_artifact, len(features), what="artifact")
    for what, n in (("with", int(bits.sum())), ("without", int((~bits).sum()))):
        if n < LEAST:
            raise DataError(f"A diagnosis needs at least {LEAST} images {what} the artifact, but there are {n}.")
    if np.all(features == features[0]):
        raise DataError(
            f"All {features.shape[1]} features are constant over all {len(features)} samples, so there is nothing to "
            "examine. Are these the activations of a dead layer?"
        )
    return features, bits


def _checked_bits(given: ArrayLike, n: int, *, what: str) -> Bits:
    values = np.asarray(given)
    if values.shape != (n,):
        raise DataError(f"A diagnosis needs one {what} label for each of {n} samples; given shape {values.shape}.")
    bits = values.astype(bool)
    if values.dtype.kind not in "biuf" or not np.array_equal(bits, values):
        raise DataError(f"{what.capitalize()} labels are 0 or 1, but among these are {np.unique(values)[:5].tolist()}.")
    return bits


def _checked_others(others: ArrayLike, channels: int) -> FloatArray:
    features = _numbers(others)
    if features.shape[1] != channels or len(features) < 2:
        raise DataError(
            f"The class direction needs at least 2 images of other classes with {channels} channels, but the shape of "
            f"others is {features.shape}."
        )
    return features


def _checked_ids(ids: Sequence[int | str] | None, n: int) -> Sequence[int | str]:
    if ids is None:
        return range(n)
    if len(ids) != n:
        raise DataError(f"Each sample needs one id, but there are {n} samples and {len(ids)} ids.")
    # Neither numbers of numpy nor paths would survive JSON.
    return [int(name) if isinstance(name, (int, np.integer)) else str(name) for name in ids]


def _numbers(X: ArrayLike) -> FloatArray:
    try:
        features: FloatArray = check_array(X, dtype=np.float64, ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"A diagnosis needs activations (samples, channels): {str(error).splitlines()[0]}") from error
    if n_bad := int(np.sum(~np.isfinite(features).all(axis=1))):
        raise DataError(
            f"A diagnosis needs finite activations; {n_bad} of {len(features)} samples hold NaN or infinity."
        )
    return features


@dataclass(frozen=True, eq=False)
class Basis:
    """The samples that are examined, and a caveat about their artifact labels."""

    rows: np.ndarray  # numbers of samples
    sentence: str = ""
    is_circular: bool = False

    def annotate(self, found: Diagnosis) -> Diagnosis:
        """Return the diagnosis with a verdict that says what it rests on; nothing circular is called good."""
        if not self.sentence:
            return found
        if not self.is_circular:
            return replace(found, verdict=f"{found.verdict} {self.sentence}")
        level: Level = "poor" if found.level == "poor" else "unknown"
        return replace(found, level=level, verdict=f"{self.sentence} {found.verdict}")


def choose_basis(has_artifact: Bits, is_marked: Bits | None) -> Basis:
    """Choose the samples whose labels a person gave; all, where they are too few, which the verdict then states.

    Args:
        is_marked: Which labels a person gave, the others were proposed; None where all were given by a person.
    """
    everything = np.arange(len(has_artifact))
    if is_marked is None or is_marked.all():
        return Basis(everything)
    n_proposed = int((~is_marked).sum())
    n_with, n_without = int((has_artifact & is_marked).sum()), int((~has_artifact & is_marked).sum())
    if min(n_with, n_without) >= LEAST:
        sentence = (
            f"Only the {n_with + n_without} marked images were examined; the other {n_proposed} that the direction is "
            "learned from have proposed labels."
        )
        return Basis(np.flatnonzero(is_marked), sentence)
    sentence = (
        f"This measures agreement with the labelling page's own proposal, not the truth: {n_proposed} of these "
        f"{len(everything)} labels were proposed, and a test needs {LEAST} marked images with the artifact and {LEAST} "
        f"without (there are {n_with} and {n_without})."
    )
    return Basis(everything, sentence, is_circular=True)


@dataclass(frozen=True)
class QuickCheck:
    """How well held-out samples are separated, and whether that is better than with shuffled labels."""

    auc: float
    is_visible: bool


def expected_cosine(X: FloatArray, bits: Bits, *, cav: str, seed: int) -> float:
    """Return the cosine that a CAV of these samples is expected to have with that of unlimited samples.

    From how far random halves agree; 0 where they do not.
    """
    _, directions = _few_repeats(X, bits, cav=cav, seed=seed).halves()
    between = np.sum(directions[:, 0] * directions[:, 1], axis=1).mean()
    return float(np.sqrt(of_both_halves(between)))


def quick_check(X: FloatArray, bits: Bits, *, cav: str, seed: int) -> QuickCheck:
    """Return whether a CAV of this kind learns anything from the labels; `diagnose_cav` says how far to trust it."""
    repeats = _few_repeats(X, bits, cav=cav, seed=seed)
    auc = repeats.held_out().auc
    return QuickCheck(auc, level_of("permutation_p", repeats.null().p_value(auc)) != "poor")


def _few_repeats(X: FloatArray, bits: Bits, *, cav: str, seed: int) -> Repeats:
    features = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    fitted = new_cav(cav, bits, seed=seed).fit(features, bits)
    return Repeats(fitted, features, bits, seed=seed, effort=SPARING, progress=silent)
