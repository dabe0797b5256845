"""What changed from the model as it came to the corrected one, with 95 % intervals: what the verdict rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hansfree.report.numbers import write_point_range, write_points
from hansfree.report.reading import CLEAN_TRAINED, ORIGINAL, REFERENCES, Results, Variant
from hansfree.report.ruling import Judgement, Seen, describe_rule, rule_on
from hansfree.report.usable import CLEAN, budget_of, objection_to
from hansfree.results import Row

DECISIVE, FLIPS = "balanced_accuracy_biased", "flip_rate"
_NAMES = {
    FLIPS: "flips",
    DECISIVE: "balanced accuracy with the artifact",
    CLEAN: "balanced accuracy without the artifact",
}


def judge_methods(results: Results) -> dict[str, Judgement]:
    """Rule on the model of every method, by its own faults and merits alone; of repeats the first counts."""
    variants = {variant.method: variant for variant in reversed(results.methods()) if variant.method not in REFERENCES}
    return {method: _judge(results, variants.get(method)) for method in dict.fromkeys([*results.selection, *variants])}


def pair_of(before: Mapping[str, Row], after: Mapping[str, Row], metric: str) -> tuple[Row, Row] | None:
    """Return a score before and after, where both are numbers."""
    rows = before.get(metric), after.get(metric)
    if rows[0] is None or rows[1] is None or not (math.isfinite(rows[0].value) and math.isfinite(rows[1].value)):
        return None
    return rows[0], rows[1]


def describe_differences(results: Results, original: Variant, shown: Variant) -> str:
    """Give the differences with their intervals in one sentence; nothing where none is known."""
    found = [
        f"{name} {write_points(one.value)} ({write_point_range(one.low, one.high)})"
        for metric, name in _NAMES.items()
        if (one := results.difference(shown, original, metric))
    ]
    return f"Differences on the same images, in points with 95 % intervals: {', '.join(found)}." if found else ""


def _judge(results: Results, variant: Variant | None) -> Judgement:
    seen = Seen(is_usable=False) if variant is None else _gather(results, variant)
    return Judgement(rule_on(seen), describe_rule(seen, budget=budget_of(results)))


def _gather(results: Results, variant: Variant) -> Seen:
    """Return what the rule looks at."""
    is_usable = not objection_to(results, variant)
    original, clean_trained = results.variant(ORIGINAL), results.variant(CLEAN_TRAINED)
    if original is None:
        return Seen(is_usable=is_usable)
    rates = pair_of(results.chosen(original), results.chosen(variant), FLIPS)
    flips, biased = (results.difference(variant, original, metric) for metric in (FLIPS, DECISIVE))
    beyond = results.difference(variant, clean_trained, FLIPS) if clean_trained else None
    return Seen(
        is_usable=is_usable,
        flips=(rates[0].value, rates[1].value) if rates else None,
        flips_change=(flips.low, flips.high) if flips else None,
        flips_p=flips.p if flips else None,
        biased_change=(biased.low, biased.high) if biased else None,
        flips_beyond_clean=(beyond.low, beyond.high) if beyond else None,
    )
