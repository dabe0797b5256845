"""The rule by which a correction is called corrected or not: stated on the page, and nothing else decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hansfree.metrics import LEVEL, Interval
from hansfree.report.numbers import CONFIDENCE, percent, write_points

Ruling = Literal[
    "as a clean-trained model", "corrected", "partly corrected", "not corrected", "do not use", "cannot be known"
]
MARGIN = 0.05  # flips that a model may have beyond those of a clean-trained one, and still be called like it


@dataclass(frozen=True)
class Judgement:
    """What a model is called, the rule by which it is called so, and what stood in the way of a better word."""

    ruling: Ruling
    rule: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a model wins over another on the same test images, as intervals of its score minus the other's.

    None where it cannot be known.
    """

    flips: Interval | None = None
    flips_p: float | None = None  # McNemar's, of that difference
    accuracy: Interval | None = None  # balanced, with the artifact


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the rule looks at; None where it cannot be known."""

    is_usable: bool = True  # nothing speaks against the model: it did not fail or collapse, nor overspend the budget
    flips: tuple[float, float] | None = None  # flip rate before and after
    over_original: Gain = Gain()
    over_vanilla: Gain | None = None  # None where plain fine-tuning was not run, failed, or is the model itself
    pull: tuple[float, float] | None = (
        None  # what the artifact adds to the biased class's probability, before and after
    )
    pull_change: Interval | None = None
    false_alarms: tuple[float, float] | None = None  # of the biased class, with the artifact, before and after
    specificity_change: Interval | None = None  # one minus those, after minus before
    flips_beyond_clean: Interval | None = None  # flip rate after minus that of a model trained on clean data


def rule_on(seen: Seen) -> Ruling:
    """Apply the rule, as `describe_rule` puts it in words."""
    if not seen.is_usable:
        return "do not use"
    accuracy, flips = _clear_accuracy(seen), _clear_flips(seen)
    if accuracy is None and flips is None:
        return "cannot be known"
    if _pulls_harder(seen) or -1 in (accuracy, flips) or 1 not in (accuracy, flips):
        return "not corrected"
    if accuracy == flips == 1 and seen.flips is not None and seen.flips[1] <= seen.flips[0] / 2:
        # the upper end: only images enough can show that nothing is left
        is_as_clean = seen.flips_beyond_clean is not None and seen.flips_beyond_clean[1] <= MARGIN
        return "as a clean-trained model" if is_as_clean else "corrected"
    return "partly corrected"


def explain(seen: Seen) -> str:
    """Say what no difference to the model as it came shows, and yet counts against a model; empty where nothing."""
    if not seen.is_usable:
        return ""
    if _pulls_harder(seen):
        return _describe_pull(seen)
    alone = Seen(flips=seen.flips, over_original=seen.over_original, flips_beyond_clean=seen.flips_beyond_clean)
    if rule_on(alone) != rule_on(seen):
        return "What is won, or part of it, is won by plain fine-tuning (Vanilla) alone."
    return ""


def describe_rule(seen: Seen, *, budget: float, class_budgets: Mapping[str, float] | None = None) -> str:
    """Put the rule in words, as far as it can be applied.

    Args:
        budget: What balanced accuracy without the artifact may lose.
        class_budgets: What the sensitivity to a class may lose there, by its name.
    """
    gain = seen.over_original
    if gain.accuracy is None and gain.flips is None:
        return "without images enough with the artifact, nothing is called corrected."
    than = "the original model" + ("" if seen.over_vanilla is None else " and than plain fine-tuning (Vanilla)")
    classes = "".join(
        f", the sensitivity to “{name}” at most {100 * most:g}" for name, most in (class_budgets or {}).items()
    )
    clean = f"balanced accuracy without it loses at most {100 * budget:g} points{classes} (beyond one standard error)"
    if gain.flips is None:
        harder = (
            " A model is “not corrected” where more images of other classes with the artifact are called by the class "
            "that it goes with."
            if seen.specificity_change is not None
            else ""
        )
        return (
            f"“partly corrected” is a model that has a higher balanced accuracy with the artifact than {than}, with "
            f"{CONFIDENCE} intervals above zero, while {clean}; more cannot be said where the artifact was not "
            f"inserted.{harder}"
        )
    as_clean = (
        " “As a clean-trained model” is one that, beside this, has at most "
        f"{100 * MARGIN:g} points more flips than a model trained on clean data, at the upper end of the interval."
        if seen.flips_beyond_clean is not None
        else ""
    )
    return (
        "“corrected” is a model for which inserting the artifact changes at most half as many decisions as before, and "
        f"which has fewer such flips and a higher balanced accuracy with the artifact than {than}: with {CONFIDENCE} "
        f"intervals that leave out zero (for the flips, the exact McNemar test must agree: p below {1 - LEVEL:.2g}), "
        f"while {clean}.{as_clean} Less, but one of the two clearly better and none clearly worse, is “partly "
        "corrected”. Where the artifact clearly moves the probability of the class that it goes with by "
        "more than before, or has more images of other classes called by it, a model is “not corrected”."
    )


def _clear_accuracy(seen: Seen) -> int | None:
    """Return 1 for more right answers than every rival's, -1 for fewer than one's, 0 where that is not clear."""
    return _least(_sign(gain.accuracy) for gain in _gains(seen))


def _clear_flips(seen: Seen) -> int | None:
    """Return 1 for fewer flips than every rival's, -1 for more than one's, 0 where that is not clear."""
    return _least(_fewer_flips(gain) for gain in _gains(seen))


def _pulls_harder(seen: Seen) -> bool:
    """Tell whether the artifact moves the biased class's probability by more, or makes it the answer more often."""
    return _moves_more(seen) or _sign(seen.specificity_change) == -1


def _moves_more(seen: Seen) -> bool:
    is_more = seen.pull is not None and abs(seen.pull[1]) > abs(seen.pull[0])
    return is_more and _sign(seen.pull_change) in (-1, 1)


def _describe_pull(seen: Seen) -> str:
    """Say how the artifact has more of a say than before, with the numbers before and after."""
    if seen.pull is not None and _moves_more(seen):
        way = "pulls images harder towards" if seen.pull[1] > 0 else "pushes images harder away from"
        before, after = map(write_points, seen.pull)
        numbers = f": it moves that class's probability by {after} points instead of {before}"
    else:
        way, numbers = "pulls images harder towards", ""
        if seen.false_alarms is not None:
            before, after = map(percent, seen.false_alarms)
            numbers = f": with it, {after} of the images of other classes are called by that class instead of {before}"
    return f"The artifact {way} the class that it goes with than before{numbers}."


def _gains(seen: Seen) -> list[Gain]:
    return [seen.over_original, *([] if seen.over_vanilla is None else [seen.over_vanilla])]


def _least(signs: Iterable[int | None]) -> int | None:
    return min((sign for sign in signs if sign is not None), default=None)


def _sign(change: Interval | None) -> int | None:
    """Return 1 for a clear rise, -1 for a clear fall, 0 where the interval holds zero."""
    if change is None:
        return None
    return 1 if change[0] > 0 else -1 if change[1] < 0 else 0


def _fewer_flips(gain: Gain) -> int | None:
    """Return 1 for clearly fewer flips, -1 for more; where few images differ, the exact test has a say too."""
    sign = _sign(gain.flips)
    if sign is None:
        return None
    return -sign if gain.flips_p is not None and gain.flips_p < 1 - LEVEL else 0
