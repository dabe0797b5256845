"""What changed from the model as it came to the corrected one, with its intervals: what the verdict rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hansfree.corrections import Vanilla
from hansfree.metrics import Interval
from hansfree.report.numbers import CONFIDENCE, percent, write_point_range, write_points
from hansfree.report.reading import REFERENCES, Results, Variant
from hansfree.report.ruling import Gain, Judgement, Seen, describe_rule, explain, rule_on
from hansfree.report.usable import CLEAN, budget_of, class_budgets_of, kind_of, objection_to
from hansfree.results import CLEAN_TRAINED, ORIGINAL, Row

DECISIVE, FLIPS = "balanced_accuracy_biased", "flip_rate"
PULL, SPECIFICITY = "probability_change", "specificity_biased"  # the latter of the biased class, where it is compared
_NAMES = {
    FLIPS: "flips",
    DECISIVE: "balanced accuracy with the artifact",
    CLEAN: "balanced accuracy without the artifact",
    PULL: "pull of the artifact (probability change)",
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


def describe_move(results: Results, shown: Variant, pair: tuple[Row, Row], *, on: str = "") -> str:
    """Say how a score went from the original model to another: up or down only where the interval leaves out zero."""
    old, new = (percent(row.value) for row in pair)
    original = results.variant(ORIGINAL)
    known = results.difference(shown, original, pair[0].metric) if original else None
    if known is None:
        return f"goes from {old} to {new}{on}"
    if known.low <= 0 <= known.high:
        return f"stays about the same{on} ({old} before, {new} after)"
    return f"{'rises' if known.value > 0 else 'falls'} from {old} to {new}{on}"


def describe_differences(results: Results, original: Variant, shown: Variant) -> str:
    """Give the differences with their intervals in one sentence; nothing where none is known."""
    found = [
        f"{name} {write_points(one.value)} ({write_point_range(one.low, one.high)})"
        for metric, name in _NAMES.items()
        if (one := results.difference(shown, original, metric))
    ]
    told = f"Differences on the same images, in points with {CONFIDENCE} intervals: {', '.join(found)}."
    return told if found else ""


def is_clearly_better(results: Results, variant: Variant, rival: Variant) -> bool:
    """Tell whether a model beats another as the rule has it: one of the two scores clearly better, none worse."""
    return rule_on(Seen(over_original=_gain(results, variant, rival))) == "partly corrected"


def _judge(results: Results, variant: Variant | None) -> Judgement:
    seen = Seen(is_usable=False) if variant is None else _gather(results, variant)
    classes = {results.class_title(label): most for label, most in class_budgets_of(results).items()}
    rule = describe_rule(seen, budget=budget_of(results), class_budgets=classes)
    return Judgement(rule_on(seen), rule, explain(seen))


def _gather(results: Results, variant: Variant) -> Seen:
    """Return what the rule looks at."""
    is_usable = not objection_to(results, variant)
    original, vanilla, clean_trained = map(results.variant, (ORIGINAL, Vanilla.name, CLEAN_TRAINED))
    if original is None:
        return Seen(is_usable=is_usable)
    rates, pulls = (pair_of(results.chosen(original), results.chosen(variant), metric) for metric in (FLIPS, PULL))
    # a head that always gives the same answer flips nothing: nobody is asked to beat that
    is_rival = vanilla is not None and vanilla != variant and kind_of(results, vanilla) == "method"
    return Seen(
        is_usable=is_usable,
        flips=(rates[0].value, rates[1].value) if rates else None,
        over_original=_gain(results, variant, original),
        over_vanilla=_gain(results, variant, vanilla) if vanilla and is_rival else None,
        pull=(pulls[0].value, pulls[1].value) if pulls else None,
        pull_change=_interval(results, variant, original, PULL),
        false_alarms=_false_alarms(results, original, variant),
        specificity_change=_interval(results, variant, original, SPECIFICITY),
        flips_beyond_clean=_interval(results, variant, clean_trained, FLIPS) if clean_trained else None,
    )


def _false_alarms(results: Results, original: Variant, variant: Variant) -> tuple[float, float] | None:
    """Return the share of other classes' images that the biased class is said of, with the artifact."""
    label = results.meta.get("biased_class")
    if not isinstance(label, int):
        return None
    rows = [results.of_classes(each, SPECIFICITY).get(label) for each in (original, variant)]
    known = [1 - row.value for row in rows if row is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _gain(results: Results, variant: Variant, rival: Variant) -> Gain:
    flips = results.difference(variant, rival, FLIPS)
    return Gain(
        flips=_interval(results, variant, rival, FLIPS),
        flips_p=flips.p if flips else None,
        accuracy=_interval(results, variant, rival, DECISIVE),
    )


def _interval(results: Results, variant: Variant, rival: Variant, metric: str) -> Interval | None:
    found = results.difference(variant, rival, metric)
    return (found.low, found.high) if found else None
