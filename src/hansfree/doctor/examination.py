"""The examination: all tests on one CAV, and the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hansfree.cavs import CAV
from hansfree.cavs.class_means import FloatArray
from hansfree.doctor.bar import OneBar
from hansfree.doctor.diagnosis import CurvePoint, Diagnosis, WrongMark
from hansfree.doctor.findings import describe
from hansfree.doctor.held_out import ODDS, HeldOut
from hansfree.doctor.measured import Measured
from hansfree.doctor.refits import Bits
from hansfree.doctor.repeats import Repeats, count_batches, effort_for
from hansfree.doctor.solvers import compare_solvers, new_cav, overlap_with_class
from hansfree.doctor.verdict import judge
from hansfree.errors import DataError, OptionError
from hansfree.progress import Progress, silent

LEAST = 4  # images with and without the artifact: two for each half


def examine_cav(
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
    """Tell whether the direction of these samples can be trusted, without any ground truth.

    Only noise can be seen from within: `hansfree.doctor.LIMIT` says what cannot. Samples are taken as independent;
    where several images show one patient, give one of each or expect angles that are too small.

    Args:
        X: Pooled activations (samples, channels) of the images that the CAV is fitted on: those of the biased class,
            with and without the artifact.
        has_artifact: One bit per sample.
        cav: Name of the CAV. Of several directions the first is examined.
        paired: The samples are pairs, first all clean ones and then the same images with the artifact, and only whole
            pairs are redrawn: what both halves share is no noise.
        in_class: Which samples are of the biased class, one bit each; None: all of them.
        others: Pooled activations of clean images of the other classes, to see whether the direction is the class's.
        ids: What to call the samples where they are listed; their row by default.
        unmarked: How many images could still be marked, where somebody marks: the verdict then says how many of which
            kind to mark, and never asks for more.
        seed: Of all draws.
        progress: Shows how far the repeated fits have come.

    >>> import numpy as np
    >>> has_artifact = np.arange(120) % 2 == 0
    >>> activations = np.random.default_rng(0).normal(size=(120, 5)) + np.outer(has_artifact, [0, 8, 0, 0, 0])
    >>> diagnosis = examine_cav(activations, has_artifact)
    >>> diagnosis.level
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
    bar = OneBar(progress, total=steps, label="CAV doctor")
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
        wrong_marks=() if paired else _wrong_marks(names, bits, held_out),
        is_paired=paired,
    )
    findings = describe(measured)
    level, verdict = judge(measured, findings, unmarked=unmarked)
    whole = CurvePoint(
        measured.n_artifact, measured.expected_error, measured.error_interval, measured.whole_angle, held_out.auc
    )
    curve = (*repeats.curve(halves, directions), whole)
    bar.finish()
    return Diagnosis(
        cav=cav,
        n_artifact=measured.n_artifact,
        n_clean=measured.n_clean,
        channels=features.shape[1],
        seed=int(seed),
        level=level,
        verdict=verdict,
        findings=findings,
        curve=curve,
        wrong_marks=measured.wrong_marks,
        agreement=measured.agreement,
        scores=tuple(held_out.scores.tolist()),
        has_artifact=tuple(bits.tolist()),
    )


def _wrong_marks(names: Sequence[int | str], bits: Bits, held_out: HeldOut) -> tuple[WrongMark, ...]:
    """Return the samples on the wrong side, the most suspicious first; none where the classes overlap too much."""
    if not held_out.tells_wrong_marks:
        return ()
    odds = held_out.odds(bits)
    rows = sorted(np.flatnonzero(odds >= ODDS).tolist(), key=lambda row: -float(odds[row]))
    return tuple(WrongMark(names[row], bool(bits[row]), float(held_out.scores[row]), float(odds[row])) for row in rows)


def _checked(X: ArrayLike, has_artifact: ArrayLike) -> tuple[FloatArray, Bits]:
    features = _numbers(X, "The doctor")
    bits = _checked_bits(has_artifact, len(features), what="artifact")
    for what, n in (("with", int(bits.sum())), ("without", int((~bits).sum()))):
        if n < LEAST:
            raise DataError(
                f"The doctor needs at least {LEAST} images {what} the artifact, two for each half, but there are {n}."
            )
    if np.all(features == features[0]):
        raise DataError(
            f"All {features.shape[1]} features are constant over all {len(features)} samples, so there is nothing to "
            "examine. Are these the activations of a layer that has died?"
        )
    return features, bits


def _checked_bits(given: ArrayLike, n: int, *, what: str) -> Bits:
    values = np.asarray(given)
    if values.shape != (n,):
        raise DataError(
            f"The doctor needs one {what} bit per sample, but there are {n} samples and bits of shape {values.shape}."
        )
    bits = values.astype(bool)
    if values.dtype.kind not in "biuf" or not np.array_equal(bits, values):
        raise DataError(f"{what.capitalize()} bits are 0 or 1, but among these are {np.unique(values)[:5].tolist()}.")
    return bits


def _checked_others(others: ArrayLike, channels: int) -> FloatArray:
    features = _numbers(others, "The class direction")
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


def _numbers(X: ArrayLike, who: str) -> FloatArray:
    try:
        features = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{who} needs numbers, but these samples are none ({error}).") from error
    if features.ndim != 2 or features.shape[1] == 0:
        raise DataError(f"{who} takes activations (samples, channels), but their shape is {features.shape}.")
    if not np.all(np.isfinite(features)):
        n_bad = int(np.sum(~np.isfinite(features).all(axis=1)))
        raise DataError(f"{who} needs finite numbers, but {n_bad} of {len(features)} samples hold NaN or infinity.")
    return features
