"""The rule by which a correction is called corrected or not: stated on the page, and nothing else decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hansfree.metrics import Interval

Ruling = Literal["gone", "corrected", "partly corrected", "not corrected", "do not use", "cannot be known"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the rule looks at; None where it cannot be known.

    Changes are after minus before, on the same test images, as 95 % intervals.
    """

    is_usable: bool = True  # nothing speaks against the model: it did not fail or collapse, nor overspend the budget
    flips: tuple[float, float] | None = None  # flip rate before and after
    flips_change: Interval | None = None
    biased_change: Interval | None = None  # of balanced accuracy with the artifact
    flips_low: float | None = None  # lower end of the interval of the flip rate after
    flips_clean_trained: float | None = None  # flip rate of a model trained on clean data


def rule_on(seen: Seen) -> Ruling:
    """Apply the rule, as `describe_rule` puts it in words."""
    if not seen.is_usable:
        return "do not use"
    accuracy = _sign(seen.biased_change)
    change = _sign(seen.flips_change)
    flips = None if change is None else -change  # fewer are better
    if accuracy is None and flips is None:
        return "cannot be known"
    if accuracy == flips == 1:
        if _reaches_clean(seen):
            return "gone"
        return "corrected" if seen.flips and seen.flips[1] <= seen.flips[0] / 2 else "partly corrected"
    return "partly corrected" if 1 in (accuracy, flips) and -1 not in (accuracy, flips) else "not corrected"


def describe_rule(seen: Seen, *, budget: float) -> str:
    """Put the rule in words, as far as it can be applied.

    Args:
        budget: What balanced accuracy without the artifact may lose.
    """
    clean = f"balanced accuracy without it loses at most {100 * budget:g} points (beyond one standard error)"
    if seen.biased_change is None and seen.flips_change is None:
        return "without images enough with the artifact, nothing is called corrected."
    if seen.flips_change is None:
        return (
            "“partly corrected” is a model whose balanced accuracy on images with the artifact rises, with a 95 % "
            f"interval above zero, while {clean}; more cannot be said where the artifact was not inserted."
        )
    gone = (
        " “Gone” takes a flip rate whose interval reaches that of a model trained on clean data instead of half."
        if seen.flips_clean_trained is not None
        else ""
    )
    return (
        "“corrected” is a model for which inserting the artifact changes at most half as many decisions as before, and "
        "whose balanced accuracy with the artifact rises, both with 95 % intervals that leave out zero, while "
        f"{clean}.{gone} Less, but one of the two clearly better and none clearly worse, is “partly corrected”."
    )


def _sign(change: Interval | None) -> int | None:
    """Return 1 for a clear rise, -1 for a clear fall, 0 where the interval holds zero."""
    if change is None:
        return None
    return 1 if change[0] > 0 else -1 if change[1] < 0 else 0


def _reaches_clean(seen: Seen) -> bool:
    return (
        seen.flips_low is not None
        and seen.flips_clean_trained is not None
        and seen.flips_low <= seen.flips_clean_trained
    )
