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

# By the name of the finding, with the case after a dot where there are several.
SENTENCES = {
    "expected_error": "The direction lies about {value:angle} ({low:.0f} to {high:.0f}) from the one that unlimited "
    "images of this kind would give{remains}.",
    "split_half_angle": "Directions of two random halves differ by {value:angle} (cosine {cosine:.2f}); with shuffled "
    "labels by {median:.0f}, and in 95 % of shuffles by more than {least:.0f}.",
    "bootstrap_angle": "Resampling the images turns the direction by {value:angle} (95 %: {low:.0f} to {high:.0f}); "
    "pure noise in many channels would show 45.",
    "held_out_auc": "Along the direction, held-out images with and without the artifact are separated with an AUC of "
    "{value:.2f} ± {stderr:.2f}.",
    "permutation_p": "{reached} of {n} shuffles of the labels reached this AUC (p = {value:.3f}); 95 % of them stayed "
    "below {top:.2f}.",
    "images_needed": "About {count} bring the expected error to {target:.0f} degrees (there are {there}). This is an "
    "estimate: the angle falls as one over the root of the number.",
    "images_needed.unknown": "How many artifact images {target:.0f} degrees would take cannot be estimated: these show "
    "no direction to extrapolate from.",
    "class_overlap": "The cosine with the direction that separates the biased class from the others is {value:.2f}: "
    "{meaning}",
    "class_overlap.unknown": "The overlap with the class was not examined: no images of other classes were given.",
    "suspect_labels": "{found}",
    "suspect_labels.paired": "The artifact was inserted, so every artifact label is right.",
    "suspect_labels.unknown": "Wrong artifact labels cannot be detected: the scores of both kinds overlap too much.",
    "solver_agreement": "Cosines of {cav} with the other solvers: {listed}; {meaning}",
}
OVERLAPS: dict[Level, str] = {
    "good": "removing it leaves the classes apart.",
    "unknown": "but the direction is too noisy to show an overlap.",
    "fair": "removing it takes {:.0f} % of the squared distance between the classes.",
    "poor": "removing it removes the class: {:.0f} % of the squared distance between the classes.",
}
VERDICTS = {
    "invisible": "Do not use this direction: held-out images with and without the artifact are separated no better "
    "(AUC {auc:.2f}) than with shuffled labels. The artifact does not show in this layer, or the artifact labels are "
    "wrong.",
    "hardly visible": "But the artifact hardly shows in this layer (held-out AUC {auc:.2f}): try another one.",
    "good": "{images} are enough: the direction moves by {moves:angle} between halves, which puts it within about "
    "{error:angle} of where unlimited images would.",
    "limit": "{images} are just about enough: the direction moves by {moves:angle} between halves and is off by about "
    "{error:.0f}, which is the limit of what is called good.",
    "fair": "{images} are few, use it with care: the direction moves by {moves:angle} between halves and is off by "
    "about {error:angle}.{more}",
    "poor": "{images} are too few: the direction moves by {moves:angle} between halves.{more}",
}
_WORST_FIRST: tuple[Level, ...] = ("poor", "fair", "good")
_DECISIVE = ("permutation_p", "expected_error", "held_out_auc", "class_overlap")
_ALIKE = 0.7  # cosine from which on solvers are said to agree
_MOST_NAMED = 5  # suspect labels in a sentence


class _Number(float):
    """A number that a template writes in whole degrees by ``{:angle}``."""

    def __format__(self, spec: str) -> str:
        if spec == "angle":
            return f"{self:.0f} {'degree' if round(self) == 1 else 'degrees'}"
        return super().__format__(spec)


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
    def half_angle(self) -> float:
        """Degrees between the directions of two halves."""
        return float(to_degrees(self.half_cosines.mean()))

    @property
    def expected_error(self) -> float:
        """Degrees to the direction of unlimited images, extrapolated from the halves."""
        return float(angle_to_truth(of_both_halves(self.half_cosines.mean())))

    @property
    def error_interval(self) -> tuple[float, float]:
        """The middle 95 % of the expected error over the halvings."""
        return middle(angle_to_truth(of_both_halves(self.half_cosines)))

    @property
    def is_visible(self) -> bool:
        """Whether the artifact shows at all."""
        return level_of("permutation_p", self.null.p_value(self.held_out.auc)) != "poor"

    @property
    def is_at_limit(self) -> bool:
        """Whether the expected error is past `TARGET` degrees by less than is written."""
        return TARGET < self.expected_error < TARGET + 0.5

    @property
    def rarer(self) -> tuple[int, str]:
        """The kind of images that there are fewer of: how many, and their name."""
        if self.n_clean < self.n_artifact:
            return self.n_clean, "images without the artifact"
        return self.n_artifact, "artifact images"

    def images_for(self, angle: float) -> float | None:
        """Return how many images of the rarer kind bring an expected error to `TARGET`; None where none can."""
        fewer, more = sorted((self.n_artifact, self.n_clean))
        return images_for(TARGET, fewer=fewer, more=more, angle=angle)


def middle(values: FloatArray) -> tuple[float, float]:
    """Return the ends of the middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _finding(
    key: str,
    value: float | None,
    *,
    level: Level | None = None,
    interval: tuple[float, float] | None = None,
    stderr: float | None = None,
    **words: object,
) -> Finding:
    name, (low, high) = key.partition(".")[0], interval or (np.nan, np.nan)
    number = _Number(np.nan if value is None else value)
    sentence = SENTENCES[key].format(value=number, low=low, high=high, stderr=stderr, target=TARGET, **words)
    known = level_of(name, number) if level is None else level
    return Finding(name=name, value=value, stderr=stderr, interval=interval, level=known, sentence=sentence)


def describe(measured: Measured) -> tuple[Finding, ...]:
    """Return all findings, the weightiest first."""
    error, held_out, null = measured.expected_error, measured.held_out, measured.null
    p_value, shuffled = null.p_value(held_out.auc), to_degrees(null.cosine)
    # Only a pattern becomes the artifact's own shift with unlimited images; a filter becomes what separates best.
    share = f"; {100 * np.sin(np.radians(error)):.0f} % of the artifact's mean shift would stay after it is removed"
    return (
        _finding(
            "expected_error",
            error,
            interval=measured.error_interval,
            remains=share if CAV.named(measured.cav).is_mean_difference else "",
        ),
        _finding(
            "split_half_angle",
            measured.half_angle,
            interval=middle(to_degrees(measured.half_cosines)),
            cosine=measured.half_cosines.mean(),
            median=np.median(shuffled),
            least=np.percentile(shuffled, 5),
        ),
        _finding(
            "bootstrap_angle",
            float(np.median(measured.bootstrap_angles)),
            interval=middle(measured.bootstrap_angles),
        ),
        _finding("held_out_auc", held_out.auc, stderr=held_out.stderr),
        _finding(
            "permutation_p",
            p_value,
            reached=round(p_value * (len(null.auc) + 1)) - 1 or "None",
            n=len(null.auc),
            top=np.percentile(null.auc, 95),
        ),
        _images_needed(measured),
        _class_overlap(measured),
        _suspect_labels(measured),
        _solver_agreement(measured),
    )


def _images_needed(measured: Measured) -> Finding:
    need = measured.images_for(measured.expected_error) if measured.is_visible else None
    if need is None:
        return _finding("images_needed.unknown", None, level="unknown")
    low, high = (measured.images_for(end) for end in measured.error_interval)
    there, what = measured.rarer
    count = f"{rounded(need)} {what}"
    if measured.is_at_limit:
        count = f"as many {what} as there are"
    elif need > max(measured.n_artifact, measured.n_clean):
        count += " and as many of the others"
    return _finding(
        "images_needed",
        need,
        interval=None if low is None or high is None else (low, high),
        level="good" if need <= there else level_of("expected_error", measured.expected_error),
        count=count,
        there=there,
    )


def _class_overlap(measured: Measured) -> Finding:
    if measured.overlap is None:
        return _finding("class_overlap.unknown", None, level="unknown")
    value = float(measured.overlap.mean())
    level = level_of("class_overlap", abs(value))
    if level == "good" and level_of("expected_error", measured.expected_error) == "poor":
        level = "unknown"  # noise in the direction hides an overlap; it never makes one
    meaning = OVERLAPS[level].format(100 * value**2)
    return _finding("class_overlap", value, interval=middle(measured.overlap), level=level, meaning=meaning)


def _suspect_labels(measured: Measured) -> Finding:
    if measured.is_paired:
        return _finding("suspect_labels.paired", 0.0, level="good")
    if not measured.held_out.separates_labels:
        return _finding("suspect_labels.unknown", None, level="unknown")
    suspects = measured.suspect_labels
    n, kinds = len(suspects), Counter(suspect.has_artifact for suspect in suspects)
    names = [*(str(suspect.id) for suspect in suspects[:_MOST_NAMED]), *["..."] * (n > _MOST_NAMED)]
    found = (
        f"{n} {'image looks' if n == 1 else 'images look'} wrongly labelled ({kinds[True]} listed with the artifact, "
        f"{kinds[False]} without): {', '.join(names)}. Look at {'it' if n == 1 else 'them'}."
    )
    level = level_of("suspect_labels", n / (measured.n_artifact + measured.n_clean))
    return _finding("suspect_labels", float(n), level=level, found=found if n else "No artifact label looks wrong.")


def _solver_agreement(measured: Measured) -> Finding:
    rivals = [name for name in measured.agreement.names if name != measured.cav]
    cosines = [measured.agreement.between(measured.cav, name) for name in rivals]
    agree = bool(cosines) and min(cosines) >= _ALIKE
    return _finding(
        "solver_agreement",
        float(np.median(cosines)) if cosines else None,
        level="good" if agree else "unknown",
        cav=measured.cav,
        listed=", ".join(f"{name} {cosine:.2f}" for name, cosine in zip(rivals, cosines)),
        meaning="all point the same way."
        if agree
        else "this does not count against it. The signal-CAV is a pattern (where the artifact moves the activations), "
        "the others are filters (what separates best), which bend away from distractors; low agreement between "
        f"{SignalCAV.name} and the filters is normal.",
    )


def rounded(number: float) -> str:
    """Write an estimate with two digits: more would promise too much."""
    return f"{float(f'{number:.2g}'):,.0f}"


def judge(measured: Measured, findings: tuple[Finding, ...], *, unmarked: int | None = None) -> tuple[Level, str]:
    """Return the overall level, which is that of the worst decisive finding, and the verdict.

    Args:
        unmarked: How many images could still be labelled, where a person labels: no more are asked for.
    """
    by_name = {found.name: found for found in findings}
    levels = [by_name[name].level for name in _DECISIVE]
    level = next(level for level in _WORST_FIRST if level in levels)
    auc = measured.held_out.auc
    if not measured.is_visible:
        return level, VERDICTS["invisible"].format(auc=auc)
    sentences = [_stability(measured, by_name["expected_error"].level, unmarked)]
    if by_name["class_overlap"].level in ("poor", "fair"):
        sentences.append(by_name["class_overlap"].sentence)
    elif by_name["held_out_auc"].level == "poor":
        sentences.append(VERDICTS["hardly visible"].format(auc=auc))
    elif measured.suspect_labels:
        sentences.append(by_name["suspect_labels"].sentence)
    return level, " ".join(sentences)


def _stability(measured: Measured, level: Level, unmarked: int | None) -> str:
    case = "limit" if level != "good" and measured.is_at_limit else level
    count, what = measured.rarer if case in ("fair", "poor") else (measured.n_artifact, "artifact images")
    whose = " of the biased class" if measured.overlap is not None else ""  # else it is not known
    if measured.is_paired:
        count, what, whose = measured.n_artifact, "pairs of the same image without and with the artifact", ""
    return VERDICTS[case].format(
        images=f"{count} {what}{whose}",
        moves=_Number(measured.half_angle),
        error=_Number(TARGET if case == "limit" else max(1.0, measured.expected_error)),
        more=_ask(measured, unmarked),
    )


def _ask(measured: Measured, unmarked: int | None) -> str:
    """Return how many images would do; of a person who labels, ask for those that are missing."""
    need = measured.images_for(measured.expected_error)
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
        return f" Label more {rare}, but the {unmarked} images that are not labelled yet may not be enough."
    also = f" and {rounded(need - more)} {other}" if is_both else ""
    return f" Label about {rounded(need - fewer)} more {rare}{also}: that {aim}"
