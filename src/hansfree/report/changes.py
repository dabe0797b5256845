"""What changed from the model as it came to the corrected one, with 95 % intervals: what the verdict rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hansfree.metrics import Interval
from hansfree.report.numbers import write_point_range, write_points
from hansfree.report.reading import CLEAN_TRAINED, ORIGINAL, Results, Variant, spread_of
from hansfree.report.ruling import Seen
from hansfree.report.usable import CLEAN
from hansfree.results import Row

DECISIVE, FLIPS = "balanced_accuracy_biased", "flip_rate"
_NAMES = {
    FLIPS: "flips",
    DECISIVE: "balanced accuracy with the artifact",
    CLEAN: "balanced accuracy without the artifact",
}
_Z = 1.96  # standard errors to each side of a 95 % interval, where an earlier run has none


def pair_of(before: Mapping[str, Row], after: Mapping[str, Row], metric: str) -> tuple[Row, Row] | None:
    """Return a score before and after, where both are numbers."""
    rows = before.get(metric), after.get(metric)
    if rows[0] is None or rows[1] is None or not (math.isfinite(rows[0].value) and math.isfinite(rows[1].value)):
        return None
    return rows[0], rows[1]


def describe_differences(results: Results, original: Variant, shown: Variant) -> str:
    """Give the differences with their intervals in one sentence; nothing where an earlier run has none."""
    found = [
        f"{name} {write_points(one.value)} ({write_point_range(one.low, one.high)})"
        for metric, name in _NAMES.items()
        if (one := results.difference(shown, original, metric)) and one.low is not None and one.high is not None
    ]
    return f"Differences on the same images, in points with 95 % intervals: {', '.join(found)}." if found else ""


def describe_lack(results: Results, shown: Variant) -> str:
    """Say what stands in for the intervals where an earlier run has none."""
    original = results.variant(ORIGINAL)
    if original is None or _change(results, original, shown, DECISIVE) is None:
        return ""
    if describe_differences(results, original, shown):
        return ""
    return " This run kept no intervals: they are taken as 1.96 standard errors to each side."


def gather(results: Results, shown: Variant, *, is_usable: bool) -> Seen:
    """Return what the rule looks at."""
    original, clean_trained = results.variant(ORIGINAL), results.variant(CLEAN_TRAINED)
    if original is None:
        return Seen(is_usable=is_usable)
    flips = pair_of(results.chosen(original), results.chosen(shown), FLIPS)
    interval = results.interval(shown, FLIPS)
    reference = results.chosen(clean_trained).get(FLIPS) if clean_trained else None
    return Seen(
        is_usable=is_usable,
        flips=(flips[0].value, flips[1].value) if flips else None,
        flips_change=_change(results, original, shown, FLIPS),
        biased_change=_change(results, original, shown, DECISIVE),
        flips_low=interval[0] if interval else flips[1].value - _Z * spread_of(flips[1]) if flips else None,
        flips_clean_trained=reference.value if reference and math.isfinite(reference.value) else None,
    )


def _change(results: Results, original: Variant, shown: Variant, metric: str) -> Interval | None:
    """Return the interval of a change; made of the errors of two separate scores it is wider than of pairs."""
    pair = pair_of(results.chosen(original), results.chosen(shown), metric)
    if pair is None:
        return None
    one = results.difference(shown, original, metric)
    if one and one.low is not None and one.high is not None:
        return one.low, one.high
    error = one.stderr if one else math.hypot(spread_of(pair[0]), spread_of(pair[1]))
    change = pair[1].value - pair[0].value
    return change - _Z * error, change + _Z * error
