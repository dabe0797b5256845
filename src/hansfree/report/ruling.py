"""The rule by which a correction is called corrected or not: stated on the page, and nothing else decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hansfree.metrics import LEVEL, Interval

Ruling = Literal[
    "as a clean-trained model", "corrected", "partly corrected", "not corrected", "do not use", "cannot be known"
]
MARGIN = 0.05  # flips that a model may have beyond those of a clean-trained one, and still be called like it


@dataclass(frozen=True)
class Judgement:
    """What a model is called, and the rule by which it is called so, in words."""

    ruling: Ruling
    rule: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the rule looks at; None where it cannot be known.

    Changes are after minus before, on the same test images, as 95 % intervals.
    """

    is_usable: bool = True  # nothing speaks against the model: it did not fail or collapse, nor overspend the budget
    flips: tuple[float, float] | None = None  # flip rate before and after
    flips_change: Interval | None = None
    flips_p: float | None = None  # McNemar's, of that change
    biased_change: Interval | None = None  # of balanced accuracy with the artifact
    flips_beyond_clean: Interval | None = None  # flip rate after minus that of a model trained on clean data


def rule_on(seen: Seen) -> Ruling:
    """Apply the rule, as `describe_rule` puts it in words."""
    if not seen.is_usable:
        return "do not use"
    accuracy, flips = _sign(seen.biased_change), _fewer_flips(seen)
    if accuracy is None and flips is None:
        return "cannot be known"
    if accuracy == flips == 1 and seen.flips is not None and seen.flips[1] <= seen.flips[0] / 2:
        # the upper end: only images enough can show that nothing is left
        is_as_clean = seen.flips_beyond_clean is not None and seen.flips_beyond_clean[1] <= MARGIN
        return "as a clean-trained model" if is_as_clean else "corrected"
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
    as_clean = (
        " “As a clean-trained model” is one that, beside this, has at most "
        f"{100 * MARGIN:g} points more flips than a model trained on clean data, at the upper end of the interval."
        if seen.flips_beyond_clean is not None
        else ""
    )
    return (
        "“corrected” is a model for which inserting the artifact changes at most half as many decisions as before, and "
        "whose balanced accuracy with the artifact rises, both with 95 % intervals that leave out zero (for the "
        f"decisions, the exact McNemar test must agree: p below {1 - LEVEL:.2g}), while {clean}.{as_clean} Less, but "
        "one of the two clearly better and none clearly worse, is “partly corrected”."
    )


def _sign(change: Interval | None) -> int | None:
    """Return 1 for a clear rise, -1 for a clear fall, 0 where the interval holds zero."""
    if change is None:
        return None
    return 1 if change[0] > 0 else -1 if change[1] < 0 else 0


def _fewer_flips(seen: Seen) -> int | None:
    """Return 1 for clearly fewer flips, -1 for more; where few images differ, the exact test has a say too."""
    sign = _sign(seen.flips_change)
    if sign is None:
        return None
    return -sign if seen.flips_p is not None and seen.flips_p < 1 - LEVEL else 0
