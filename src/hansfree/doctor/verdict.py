"""The verdict: one or two plain sentences, from the finding that decides."""

from __future__ import annotations

from hansfree.doctor.angles import TARGET
from hansfree.doctor.diagnosis import Finding, Level
from hansfree.doctor.findings import in_degrees, rounded
from hansfree.doctor.measured import Measured

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
            f"{measured.held_out.auc:.2f}) than with shuffled bits. The artifact does not show in this layer, or the "
            "bits are wrong."
        )
    sentences = [_stability(measured, by_name, unmarked)]
    if by_name["class_overlap"].level in ("poor", "fair"):
        sentences.append(by_name["class_overlap"].sentence)
    elif by_name["held_out_auc"].level == "poor":
        sentences.append(
            f"But the artifact hardly shows in this layer (held-out AUC {measured.held_out.auc:.2f}): try another one."
        )
    elif measured.wrong_marks:
        sentences.append(by_name["wrong_marks"].sentence)
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
