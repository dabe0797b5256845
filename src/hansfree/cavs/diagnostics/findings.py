"""Findings and level of a CAV from its measurements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from hansfree.cavs import CAV, SignalCAV
from hansfree.cavs.base import FloatArray
from hansfree.cavs.diagnostics.diagnosis import Agreement, Finding, Level, SuspectLabel, level_of
from hansfree.cavs.diagnostics.resampling import (
    TARGET,
    HeldOut,
    Null,
    angle_to_truth,
    images_for,
    of_both_halves,
    to_degrees,
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What all tests on one CAV gave."""

    cav: str
    n_artifact: int
    n_clean: int
    half_cosines: FloatArray
    bootstrap_angles: FloatArray
    held_out: HeldOut
    null: Null
    agreement: Agreement
    overlap: FloatArray | None  # per halving; None without images of other classes
    suspect_labels: tuple[SuspectLabel, ...]
    is_paired: bool = False  # the same images without and with the artifact

    @property
    def p_value(self) -> float:
        """How often shuffled labels reach this AUC; the true labels count as one shuffle, so that it is never zero."""
        return self.null.p_value(self.held_out.auc)

    @property
    def is_visible(self) -> bool:
        """Whether the artifact shows at all."""
        return level_of("permutation_p", self.p_value) != "poor"

    @property
    def half_angle(self) -> float:
        """Degrees between the directions of two halves."""
        return float(to_degrees(self.half_cosines.mean()))

    @property
    def whole_angle(self) -> float:
        """Degrees between the directions of two sets as large as this one, as the halves let expect."""
        return float(to_degrees(of_both_halves(self.half_cosines.mean())))

    @property
    def expected_error(self) -> float:
        """Degrees to the direction of endless images, as the halves let expect."""
        return float(angle_to_truth(of_both_halves(self.half_cosines.mean())))

    @property
    def error_interval(self) -> tuple[float, float]:
        """The middle 95 % of the expected error over the halvings."""
        return middle(angle_to_truth(of_both_halves(self.half_cosines)))

    @property
    def rarer(self) -> tuple[int, str]:
        """The images whose small number the direction suffers from most: how many, and what they are called."""
        if self.n_clean < self.n_artifact:
            return self.n_clean, "images without the artifact"
        return self.n_artifact, "artifact images"

    @property
    def images_needed(self) -> float | None:
        """Images of the rarer kind for an expected error of `TARGET` degrees; None where nothing can be said."""
        return self.images_for(self.expected_error) if self.is_visible else None

    def images_for(self, angle: float) -> float | None:
        """Return what `images_needed` would be at another expected error."""
        fewer, more = sorted((self.n_artifact, self.n_clean))
        return images_for(TARGET, fewer=fewer, more=more, angle=angle)

    @property
    def is_at_limit(self) -> bool:
        """Whether the expected error is past `TARGET` degrees by less than is written."""
        return TARGET < self.expected_error < TARGET + 0.5


def middle(values: FloatArray) -> tuple[float, float]:
    """Return the ends of the middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


_ALIKE = 0.7  # cosine from which on solvers are said to agree

_MOST_NAMED = 5  # suspect labels in a sentence


def describe(measured: Measured) -> tuple[Finding, ...]:
    """Return all findings, the weightiest first."""
    return (
        _expected_error(measured),
        _split_half(measured),
        _bootstrap(measured),
        _auc(measured),
        _permutation(measured),
        _needed(measured),
        _overlap(measured),
        _suspect_labels(measured),
        _agreement(measured),
    )


def _expected_error(measured: Measured) -> Finding:
    value, (low, high) = measured.expected_error, measured.error_interval
    # Only a pattern becomes the artifact's own shift with endless images; a filter becomes what separates best.
    is_pattern = CAV.named(measured.cav).is_mean_difference
    share = f"{100 * np.sin(np.radians(value)):.0f} % of the artifact's mean shift would stay after it is removed"
    remains = f"; {share}" if is_pattern else ""
    return Finding(
        name="expected_error",
        value=value,
        interval=(low, high),
        level=level_of("expected_error", value),
        sentence=f"The direction lies about {in_degrees(value)} ({low:.0f} to {high:.0f}) from the one that endless "
        f"images of this kind would give{remains}.",
    )


def _split_half(measured: Measured) -> Finding:
    value, null = measured.half_angle, to_degrees(measured.null.cosine)
    return Finding(
        name="split_half_angle",
        value=value,
        interval=middle(to_degrees(measured.half_cosines)),
        level=level_of("split_half_angle", value),
        sentence=f"Directions of two random halves differ by {in_degrees(value)} (cosine "
        f"{measured.half_cosines.mean():.2f}); with shuffled labels by {np.median(null):.0f}, and in 95 % of shuffles "
        f"by more than {np.percentile(null, 5):.0f}.",
    )


def _bootstrap(measured: Measured) -> Finding:
    value, (low, high) = float(np.median(measured.bootstrap_angles)), middle(measured.bootstrap_angles)
    return Finding(
        name="bootstrap_angle",
        value=value,
        interval=(low, high),
        level=level_of("bootstrap_angle", value),
        sentence=f"Redrawing the images turns the direction by {in_degrees(value)} (95 %: {low:.0f} to {high:.0f}); "
        "pure noise in many channels would show 45.",
    )


def _auc(measured: Measured) -> Finding:
    value, stderr = measured.held_out.auc, measured.held_out.stderr
    return Finding(
        name="held_out_auc",
        value=value,
        stderr=stderr,
        level=level_of("held_out_auc", value),
        sentence=f"Along the direction, unseen images with and without the artifact are told apart with an AUC of "
        f"{value:.2f} ± {stderr:.2f}.",
    )


def _permutation(measured: Measured) -> Finding:
    value, n, top = measured.p_value, len(measured.null.auc), float(np.percentile(measured.null.auc, 95))
    reached = round(value * (n + 1)) - 1
    return Finding(
        name="permutation_p",
        value=value,
        level=level_of("permutation_p", value),
        sentence=f"{reached or 'None'} of {n} shuffles of the labels reached this AUC (p = {value:.3f}); "
        f"95 % of them stayed below {top:.2f}.",
    )


def _needed(measured: Measured) -> Finding:
    need = measured.images_needed
    if need is None:
        return Finding(
            name="images_needed",
            value=None,
            level="unknown",
            sentence=f"How many artifact images {TARGET:.0f} degrees would take cannot be estimated: these show no "
            "direction to extrapolate from.",
        )
    low, high = (measured.images_for(end) for end in measured.error_interval)
    count, what = measured.rarer
    has_enough = need <= count
    is_both = need > max(measured.n_artifact, measured.n_clean)
    return Finding(
        name="images_needed",
        value=need,
        interval=None if low is None or high is None else (low, high),
        level="good" if has_enough else level_of("expected_error", measured.expected_error),
        sentence=f"About {'as many' if measured.is_at_limit else rounded(need)} {what} "
        f"{'as there are ' if measured.is_at_limit else 'and as many of the others ' if is_both else ''}bring the "
        f"expected error to {TARGET:.0f} degrees (there are {count}). This is an estimate: it lets the angle fall as "
        "one over the root of the number.",
    )


def _overlap(measured: Measured) -> Finding:
    if measured.overlap is None:
        return Finding(
            name="class_overlap",
            value=None,
            level="unknown",
            sentence="Whether the direction is also that of the class was not examined: no images of other classes "
            "were given.",
        )
    value = float(measured.overlap.mean())
    level = level_of("class_overlap", abs(value))
    if level == "good" and level_of("expected_error", measured.expected_error) == "poor":
        # Noise in the direction hides an overlap; it never makes one.
        level = "unknown"
    meaning = {
        "good": "removing it leaves the classes apart.",
        "unknown": "but the direction is too noisy to show an overlap.",
        "fair": f"removing it takes {100 * value**2:.0f} % of the squared distance between the classes.",
        "poor": f"removing it removes the class: {100 * value**2:.0f} % of the squared distance between the classes.",
    }[level]
    return Finding(
        name="class_overlap",
        value=value,
        interval=middle(measured.overlap),
        level=level,
        sentence=f"The cosine with the direction that tells the biased class from the others is {value:.2f}: {meaning}",
    )


def _suspect_labels(measured: Measured) -> Finding:
    if measured.is_paired:
        return Finding(
            name="suspect_labels",
            value=0.0,
            level="good",
            sentence="The artifact was inserted, so every artifact label is right.",
        )
    if not measured.held_out.separates_labels:
        return Finding(
            name="suspect_labels",
            value=None,
            level="unknown",
            sentence="Wrong artifact labels cannot be detected: the scores of both kinds overlap too much.",
        )
    n = len(measured.suspect_labels)
    kinds = Counter(mark.has_artifact for mark in measured.suspect_labels)
    named = ", ".join(str(mark.id) for mark in measured.suspect_labels[:_MOST_NAMED])
    found = (
        f"{n} {'image looks' if n == 1 else 'images look'} wrongly labelled ({kinds[True]} listed with the artifact, "
        f"{kinds[False]} without): {named}{', ...' if n > _MOST_NAMED else ''}. Look at {'it' if n == 1 else 'them'}."
    )
    return Finding(
        name="suspect_labels",
        value=float(n),
        level=level_of("suspect_labels", n / (measured.n_artifact + measured.n_clean)),
        sentence=found if n else "No artifact label looks wrong.",
    )


def _agreement(measured: Measured) -> Finding:
    rivals = [name for name in measured.agreement.names if name != measured.cav]
    cosines = [measured.agreement.between(measured.cav, name) for name in rivals]
    listed = ", ".join(f"{name} {cosine:.2f}" for name, cosine in zip(rivals, cosines))
    agree = bool(cosines) and min(cosines) >= _ALIKE
    words = (
        "all point the same way."
        if agree
        else "this does not count against it. The signal-CAV is a pattern (where the artifact moves the activations), "
        "the others are filters (what separates best), which bend away from whatever disturbs; low agreement between "
        f"{SignalCAV.name} and the filters is normal."
    )
    return Finding(
        name="solver_agreement",
        value=float(np.median(cosines)) if cosines else None,
        level="good" if agree else "unknown",
        sentence=f"Cosines of {measured.cav} with the other solvers: {listed}; {words}",
    )


def in_degrees(angle: float) -> str:
    """Write an angle in whole degrees."""
    return f"{angle:.0f} {'degree' if round(angle) == 1 else 'degrees'}"


def rounded(number: float) -> str:
    """Write an estimate with two digits: more would promise too much."""
    return f"{float(f'{number:.2g}'):,.0f}"


_WORST_FIRST: tuple[Level, ...] = ("poor", "fair", "good")

_DECISIVE = ("permutation_p", "expected_error", "held_out_auc", "class_overlap")


def judge(measured: Measured, findings: tuple[Finding, ...], *, unmarked: int | None = None) -> tuple[Level, str]:
    """Return the overall level, which is that of the worst decisive finding, and the verdict.

    Args:
        unmarked: How many images could still be marked, where somebody marks: no more are asked for.
    """
    by_name = {found.name: found for found in findings}
    levels = [by_name[name].level for name in _DECISIVE]
    level = next(level for level in _WORST_FIRST if level in levels)
    if not measured.is_visible:
        return level, (
            f"Do not use this direction: held-out images with and without the artifact are told apart no better (AUC "
            f"{measured.held_out.auc:.2f}) than with shuffled labels. The artifact does not show in this layer, or the "
            "artifact labels are wrong."
        )
    sentences = [_stability(measured, by_name, unmarked)]
    if by_name["class_overlap"].level in ("poor", "fair"):
        sentences.append(by_name["class_overlap"].sentence)
    elif by_name["held_out_auc"].level == "poor":
        sentences.append(
            f"But the artifact hardly shows in this layer (held-out AUC {measured.held_out.auc:.2f}): try another one."
        )
    elif measured.suspect_labels:
        sentences.append(by_name["suspect_labels"].sentence)
    return level, " ".join(sentences)


def _stability(measured: Measured, by_name: dict[str, Finding], unmarked: int | None) -> str:
    # Only who shows images of other classes says that these are of one.
    whose = " of the biased class" if measured.overlap is not None else ""
    images, moves = f"{measured.n_artifact} artifact images{whose}", f"{in_degrees(measured.half_angle)} between halves"
    if measured.is_paired:
        images = f"{measured.n_artifact} pairs of the same image without and with the artifact"
    if by_name["expected_error"].level == "good":
        return (
            f"{images} are enough: the direction moves by {moves}, which puts it within about "
            f"{in_degrees(max(1.0, measured.expected_error))} of where endless images would."
        )
    if measured.is_at_limit:
        return (
            f"{images} are just about enough: the direction moves by {moves} and is off by about {TARGET:.0f}, which "
            "is the limit of what is called good."
        )
    more = _ask(measured, unmarked)
    if not measured.is_paired:
        count, what = measured.rarer
        images = f"{count} {what}{whose}"
    if by_name["expected_error"].level == "fair":
        return (
            f"{images} are few, use it with care: the direction moves by {moves} and is off by about "
            f"{in_degrees(measured.expected_error)}.{more}"
        )
    return f"{images} are too few: the direction moves by {moves}.{more}"


def _ask(measured: Measured, unmarked: int | None) -> str:
    """Say how many images would do; of somebody who marks, ask for those that are missing."""
    need = measured.images_needed
    if need is None:
        return ""
    fewer, more = sorted((measured.n_artifact, measured.n_clean))
    is_both = need > more and not measured.is_paired
    aim = f"would bring its error to {TARGET:.0f} degrees."
    if unmarked is None:
        return f" About {rounded(need)}{' and as many of the others' if is_both else ''} {aim}"
    rare, other = ("without it", "with it") if measured.n_clean < measured.n_artifact else ("with it", "without it")
    missing = need - fewer + (need - more if is_both else 0)
    if missing * 1.05 > unmarked:  # a number is rounded by a twentieth at most
        return f" Mark more {rare}, but the {unmarked} images that are not marked yet may not be enough."
    also = f" and {rounded(need - more)} {other}" if is_both else ""
    return f" Mark about {rounded(need - fewer)} more {rare}{also}: that {aim}"
