"""Examine a CAV: agreement of solvers, overlap of classes, suspect labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from hansfree._internal.progress import OneBar, Progress, silent
from hansfree.cavs import CAV
from hansfree.cavs.base import FloatArray
from hansfree.cavs.diagnostics.diagnosis import (
    LEAST,
    TARGET,
    Agreement,
    CurvePoint,
    Diagnosis,
    Finding,
    Level,
    ProposedLabels,
    Shuffled,
    SuspectLabel,
    level_of,
)
from hansfree.cavs.diagnostics.resampling import (
    ODDS,
    SPARING,
    Bits,
    Counts,
    HeldOut,
    Repeats,
    angle_to_truth,
    images_for,
    of_both_halves,
    to_degrees,
)
from hansfree.errors import DataError, check_count

Interval = tuple[float, float]
_DECISIVE = ("permutation_p", "expected_error", "held_out_auc", "class_overlap")
_WORST_FIRST: tuple[Level, ...] = ("poor", "fair", "good")
_ALIKE = 0.7  # cosine from which on solvers are said to agree


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
        X: Centred activations; ``is_clean`` are the images of the biased class without the artifact.
        others: Activations of clean images of the other classes, centred alike.
        halves: (repeats, 2, samples), which samples each half has, with their ``directions``.
    """
    clean = (halves * is_clean).astype(np.float64)
    n_clean = clean.sum(axis=2, keepdims=True)
    class_directions = (clean / np.maximum(n_clean, 1)) @ X - others.mean(axis=0)
    class_directions *= n_clean > 0  # a half without the class agrees with nothing
    lengths = np.linalg.norm(class_directions, axis=2, keepdims=True)
    class_directions /= np.where(lengths > 0, lengths, 1.0)
    return np.asarray(np.mean(np.sum(directions[:, ::-1] * class_directions, axis=2), axis=1))


def diagnose_cav(
    X: ArrayLike,
    has_artifact: ArrayLike,
    *,
    cav: str = "signal",
    paired: bool = False,
    in_class: ArrayLike | None = None,
    others: ArrayLike | None = None,
    is_marked: ArrayLike | None = None,
    ids: Sequence[int | str] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Diagnosis:
    """Check whether the direction of these samples can be trusted, without any ground truth.

    Samples are taken as independent: where several images show one patient, give one of each. No test on these images
    can detect a confounder: whatever occurs together with the artifact is part of the direction.

    Args:
        X: Pooled activations (samples, channels) of the images of the biased class, with and without the artifact.
        cav: Name of the CAV. Of several directions the first is examined.
        paired: The samples are pairs, first all clean ones and then the same images with the artifact; whole pairs are
            resampled.
        in_class: Which samples are of the biased class; None: all of them.
        others: Pooled activations of clean images of the other classes, for the overlap with the class.
        is_marked: Which labels a person gave; None: all. The others were proposed from the activations themselves, and
            their samples are left out where enough remain.
        ids: Names of the samples; their row by default.

    >>> import numpy as np
    >>> has_artifact = np.arange(120) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(120, 5)) + np.outer(has_artifact, [0, 8, 0, 0, 0])
    >>> diagnose_cav(activations, has_artifact).level
    'good'
    """
    check_count("seed", seed, least=0)
    features, bits = _checked(X, has_artifact)
    names = _checked_ids(ids, len(features))
    if paired and not np.array_equal(bits, np.arange(len(bits)) >= len(bits) / 2):
        raise DataError("Pairs are all clean samples and then, in the same order, the same ones with the artifact.")
    inside = np.ones(len(bits), dtype=bool) if in_class is None else _checked_bits(in_class, len(bits), what="class")
    proposed = None if is_marked is None else _proposed(bits, marked := np.asarray(is_marked, dtype=bool))
    if proposed is not None and not proposed.are_examined:
        rows = np.flatnonzero(marked)
        features, bits, inside, names = features[rows], bits[rows], inside[rows], [names[row] for row in rows.tolist()]
    if min(np.sum(inside & bits), np.sum(inside & ~bits)) < LEAST:  # nothing can be said of the class
        inside, others = np.ones(len(bits), dtype=bool), None
    center = features.mean(axis=0)
    foreign = None if others is None else _checked_others(others, features.shape[1]) - center
    features = features - center
    fitted = new_cav(cav, bits, seed=int(seed)).fit(features, bits)

    repeats = Repeats(fitted, features, bits, paired=paired, seed=int(seed))
    steps = repeats.count_batches() + len(CAV.from_marks())
    repeats.progress = bar = OneBar(progress, total=steps, label="CAV diagnostics")
    halves, directions = repeats.halves()
    held_out = repeats.held_out()
    bootstrap, null = repeats.bootstrap_angles(), repeats.null()
    agreement = compare_solvers(features[inside], bits[inside], fitted, seed=int(seed), progress=bar)
    cosines = np.sum(directions[:, 0] * directions[:, 1], axis=1)
    error = float(angle_to_truth(of_both_halves(cosines.mean())))
    interval = _middle(angle_to_truth(of_both_halves(cosines)))
    visible = _finding("permutation_p", null.p_value(held_out.auc))
    overlap = None
    if foreign is not None:
        overlap = overlap_with_class(features, ~bits & inside, foreign, halves, directions)
    suspects = () if paired else _suspect_labels(names, bits, held_out)
    wrong = float(len(suspects)) if paired or held_out.separates_labels else None
    findings = (
        _finding("expected_error", error, interval=interval),
        _finding("split_half_angle", float(to_degrees(cosines.mean())), interval=_middle(to_degrees(cosines))),
        _finding("bootstrap_angle", float(np.median(bootstrap)), interval=_middle(bootstrap)),
        _finding("held_out_auc", held_out.auc, stderr=held_out.stderr),
        visible,
        _images_needed(error, interval, bits, is_visible=visible.level != "poor"),
        _class_overlap(overlap, error),
        _finding(
            "suspect_labels", wrong, level=None if wrong is None else level_of("suspect_labels", wrong / len(bits))
        ),
        _solver_agreement(agreement, cav),
    )
    levels = [found.level for found in findings if found.name in _DECISIVE]
    level = next(level for level in _WORST_FIRST if level in levels)
    if proposed is not None and proposed.are_examined and level != "poor":
        level = "unknown"  # nothing circular is called good
    curve = (*repeats.curve(directions), CurvePoint(int(bits.sum()), error, interval))
    bar.finish()
    shuffled = to_degrees(null.cosine)
    return Diagnosis(
        cav=cav,
        n_artifact=int(bits.sum()),
        n_clean=int((~bits).sum()),
        is_paired=paired,
        level=level,
        findings=findings,
        curve=curve,
        suspect_labels=suspects,
        agreement=agreement,
        shuffled=Shuffled(
            n=len(null.auc),
            auc=float(np.percentile(null.auc, 95)),
            angle=float(np.median(shuffled)),
            least_angle=float(np.percentile(shuffled, 5)),
        ),
        proposed=proposed,
        scores=tuple(held_out.scores.tolist()),
        has_artifact=tuple(bits.tolist()),
    )


def _finding(
    name: str,
    value: float | None,
    *,
    level: Level | None = None,
    interval: Interval | None = None,
    stderr: float | None = None,
) -> Finding:
    if level is None:
        level = "unknown" if value is None else level_of(name, value)
    return Finding(name=name, value=value, stderr=stderr, interval=interval, level=level)


def _middle(values: FloatArray) -> Interval:
    """Return the ends of the middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _images_needed(error: float, interval: Interval, bits: Bits, *, is_visible: bool) -> Finding:
    """Return how many images of the rarer kind bring the expected error to `TARGET`."""
    fewer, more = sorted((int(bits.sum()), int((~bits).sum())))
    low, need, high = (
        images_for(TARGET, fewer=fewer, more=more, angle=angle) for angle in (interval[0], error, interval[1])
    )
    if need is None or not is_visible:
        return _finding("images_needed", None)
    level: Level = "good" if need <= fewer else level_of("expected_error", error)
    return _finding("images_needed", need, level=level, interval=None if low is None or high is None else (low, high))


def _class_overlap(overlap: FloatArray | None, error: float) -> Finding:
    if overlap is None:
        return _finding("class_overlap", None)
    value = float(overlap.mean())
    level = level_of("class_overlap", abs(value))
    if level == "good" and level_of("expected_error", error) == "poor":
        level = "unknown"  # noise in the direction hides an overlap; it never makes one
    return _finding("class_overlap", value, level=level, interval=_middle(overlap))


def _solver_agreement(agreement: Agreement, cav: str) -> Finding:
    cosines = [agreement.between(cav, name) for name in agreement.names if name != cav]
    level: Level = "good" if cosines and min(cosines) >= _ALIKE else "unknown"
    return _finding("solver_agreement", float(np.median(cosines)) if cosines else None, level=level)


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
        features: FloatArray = check_array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"A diagnosis needs activations (samples, channels): {str(error).splitlines()[0]}") from error
    return features


def _proposed(bits: Bits, is_marked: Bits) -> ProposedLabels | None:
    if is_marked.all():
        return None
    return ProposedLabels(
        int((~is_marked).sum()), n_with=int((bits & is_marked).sum()), n_without=int((~bits & is_marked).sum())
    )


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
    return Repeats(fitted, features, bits, seed=seed, tests=SPARING)
