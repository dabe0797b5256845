"""What the data allow to claim, which models may be used, and which one a report is about; all as data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hansfree._internal.statistics import LEVEL, Interval
from hansfree.corrections import Vanilla, has_counter_examples
from hansfree.data import BiasedData, ImageDataset
from hansfree.evaluation.results import CLEAN_TRAINED, FIRST, ORIGINAL, REFERENCES, Results, Row, Variant
from hansfree.metrics import MIN_GROUP, Difference, large_classes
from hansfree.reasons import Improvement, Reason, ReasonCode, Verdict, VerdictInputs, VerdictLevel

ModelStatus = Literal["method", "reference", "failed", "chance", "collapsed"]
CLEAN, BIASED, FLIPS = "balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate"
EFFECT, SPECIFICITY = "probability_change", "specificity_biased"  # the latter of the biased class, where it is compared
MARGIN = 0.05  # flips beyond those of the reference model that still count as its equal
TOLERATED = 0.1  # flips beyond those of the reference model that still count as corrected
TOLERATED_ALONE = 0.15  # flips that count as corrected where no reference model tells how many are usual


def judge_methods(results: Results) -> dict[str, Verdict]:
    """Return the verdict on the model of every method; of repeats, the first counts."""
    variants = {variant.method: variant for variant in reversed(results.methods()) if variant.method not in REFERENCES}
    verdicts = {}
    for method in dict.fromkeys([*results.selection, *variants]):
        variant = variants.get(method)
        inputs = VerdictInputs(is_usable=False) if variant is None else gather_inputs(results, variant)
        verdicts[method] = Verdict(decide(inputs), find_reasons(inputs), inputs)
    return verdicts


def decide(inputs: VerdictInputs) -> VerdictLevel:
    """Apply the rule, which `hansfree.report.text.describe_rule` puts in words."""
    if not inputs.is_usable:
        return VerdictLevel.UNUSABLE
    rivals = [each for each in (inputs.over_original, inputs.over_vanilla) if each is not None]
    accuracy = _least(_sign(each.accuracy) for each in rivals)
    flips = _least(_fewer_flips(each) for each in rivals)
    if inputs.insertion_differs or (accuracy is None and flips is None):
        return VerdictLevel.UNKNOWN
    if _has_stronger_effect(inputs) or _has_more_false_alarms(inputs):
        return VerdictLevel.NOT_CORRECTED
    if -1 in (accuracy, flips) or 1 not in (accuracy, flips):
        return VerdictLevel.NOT_CORRECTED
    if accuracy == flips == 1 and _leaves_little(inputs):
        beyond = inputs.flips_beyond_reference
        is_as_reference = beyond is not None and beyond[1] <= MARGIN
        return VerdictLevel.AS_REFERENCE if is_as_reference else VerdictLevel.CORRECTED
    return VerdictLevel.PARTLY_CORRECTED


def find_reasons(inputs: VerdictInputs) -> tuple[Reason, ...]:
    """Return what counts against a model and does not show in its differences to the original model."""
    if not inputs.is_usable:
        return ()
    if inputs.insertion_differs:
        return (Reason(ReasonCode.INSERTION_DIFFERS),)
    if inputs.effect is not None and _has_stronger_effect(inputs):
        before, after = inputs.effect
        return (Reason(ReasonCode.STRONGER_EFFECT, {"before": before, "after": after}),)
    if _has_more_false_alarms(inputs):
        shares = inputs.false_alarms or (None, None)
        return (Reason(ReasonCode.MORE_FALSE_ALARMS, {"before": shares[0], "after": shares[1]}),)
    alone = VerdictInputs(
        flips=inputs.flips,
        most_flips=inputs.most_flips,
        over_original=inputs.over_original,
        flips_beyond_reference=inputs.flips_beyond_reference,
    )
    return () if decide(alone) == decide(inputs) else (Reason(ReasonCode.FINE_TUNING_SUFFICES),)


def _leaves_little(inputs: VerdictInputs) -> bool:
    """Whether few flips are left, by the upper ends of intervals: only enough images can show that."""
    if inputs.flips is None or inputs.flips[1] > inputs.flips[0] / 2:
        return False
    if inputs.flips_beyond_reference is not None:
        return inputs.flips_beyond_reference[1] <= TOLERATED
    return (inputs.flips[1] if inputs.most_flips is None else inputs.most_flips) <= TOLERATED_ALONE


def _has_more_false_alarms(inputs: VerdictInputs) -> bool:
    return _sign(inputs.specificity_change) == -1


def _has_stronger_effect(inputs: VerdictInputs) -> bool:
    is_more = inputs.effect is not None and abs(inputs.effect[1]) > abs(inputs.effect[0])
    return is_more and _sign(inputs.effect_change) in (-1, 1)


def _least(signs: Iterable[int | None]) -> int | None:
    """Return 1 for clearly better than every rival, -1 for clearly worse than one, 0 where that is not clear."""
    return min((sign for sign in signs if sign is not None), default=None)


def _sign(change: Interval | None) -> int | None:
    """Return 1 for a clear rise, -1 for a clear fall, 0 where the interval holds zero."""
    if change is None:
        return None
    return 1 if change[0] > 0 else -1 if change[1] < 0 else 0


def _fewer_flips(improvement: Improvement) -> int | None:
    """Return 1 for clearly fewer flips, -1 for more; both the interval and the exact test must agree."""
    sign = _sign(improvement.flips)
    if sign is None:
        return None
    return -sign if improvement.flips_p is not None and improvement.flips_p < 1 - LEVEL else 0


def gather_inputs(results: Results, variant: Variant) -> VerdictInputs:
    """Return the numbers that the verdict on a model rests on."""
    is_usable = find_rejection(results, variant) is None
    original, vanilla, reference = map(results.variant, (ORIGINAL, Vanilla.name, CLEAN_TRAINED))
    if original is None:
        return VerdictInputs(is_usable=is_usable)
    flips, effects = (results.pair(original, variant, metric) for metric in (FLIPS, EFFECT))
    left = results.interval(variant, FLIPS)
    # a head with a constant answer flips nothing: no model has to beat that
    is_rival = vanilla is not None and vanilla != variant and status_of(results, vanilla) == "method"
    return VerdictInputs(
        is_usable=is_usable,
        insertion_differs=bool(results.meta.get("insertion_differs")),
        flips=(flips[0].value, flips[1].value) if flips else None,
        most_flips=left[1] if left else None,
        over_original=_improvement(results, variant, original),
        over_vanilla=_improvement(results, variant, vanilla) if vanilla and is_rival else None,
        effect=(effects[0].value, effects[1].value) if effects else None,
        effect_change=_interval(results, variant, original, EFFECT),
        false_alarms=_false_alarms(results, original, variant),
        specificity_change=_interval(results, variant, original, SPECIFICITY),
        flips_beyond_reference=_interval(results, variant, reference, FLIPS),
    )


def _false_alarms(results: Results, original: Variant, variant: Variant) -> tuple[float, float] | None:
    """Return the share of other classes' images that are predicted as the biased class, with the artifact."""
    label = results.meta.get("biased_class")
    if not isinstance(label, int):
        return None
    rows = [results.of_classes(each, SPECIFICITY).get(label) for each in (original, variant)]
    known = [1 - row.value for row in rows if row is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _improvement(results: Results, variant: Variant, rival: Variant) -> Improvement:
    flips = results.difference(variant, rival, FLIPS)
    return Improvement(
        flips=_interval(results, variant, rival, FLIPS),
        flips_p=flips.p if flips else None,
        accuracy=_interval(results, variant, rival, BIASED),
    )


def _interval(results: Results, variant: Variant, rival: Variant | None, metric: str) -> Interval | None:
    found = results.difference(variant, rival, metric)
    return (found.low, found.high) if found else None


def status_of(results: Results, variant: Variant) -> ModelStatus:
    """Return whether a variant competes; one that diverged, answers at chance level or lost a class never does.

    A head with a constant answer flips nothing and has no relevance on the artifact: it would win half of the columns.
    """
    if variant.method in REFERENCES:
        return "reference"
    scores = results.chosen(variant)
    if not scores or any(map(results.has_diverged, scores.values())):
        return "failed"
    balanced, chance = scores.get(CLEAN), results.meta.get("chance_level")
    if balanced and chance is not None and balanced.value <= chance + balanced.spread:
        return "chance"
    return "collapsed" if lost_classes(results, variant) else "method"


def lost_classes(results: Results, variant: Variant) -> list[int]:
    """Return the classes that the original model predicts and this one never does, on clean test images.

    Such a class has sensitivity 0 and specificity 1; where it has too few images to be scored, the validation images
    decide alone.
    """
    return sorted(_never_predicted(results, variant) - _never_predicted(results, results.original))


def _never_predicted(results: Results, variant: Variant | None) -> set[int]:
    sensitivity = results.of_classes(variant, "sensitivity_clean")
    specificity = results.of_classes(variant, "specificity_clean")
    both = sensitivity.keys() & specificity.keys()
    return {label for label in both if sensitivity[label].value == 0 and specificity[label].value == 1}


def breaks_rule(results: Results, variant: Variant) -> bool:
    """Return whether the selection rule would reject a method that has no strength to choose instead."""
    return not results.selection.get(variant.method, {}).get("admissible", True)


def find_rejection(results: Results, variant: Variant) -> Reason | None:
    """Return why a corrected model must not be used; None where it may."""
    status = status_of(results, variant)
    if status == "failed":
        return Reason(ReasonCode.NOT_FINITE) if results.chosen(variant) else why_no_model(results, variant.method)
    if status == "chance":
        return Reason(ReasonCode.CHANCE_LEVEL, {"accuracy": results.chosen(variant)[CLEAN].value})
    if status == "collapsed":
        return Reason(ReasonCode.LOST_CLASS, {"classes": lost_classes(results, variant)})
    if status != "method":
        return None
    if breaks_rule(results, variant):
        rejection = results.selection[variant.method].get("rejection")
        if rejection is None:
            return Reason(ReasonCode.RULE_BROKEN)
        return Reason(ReasonCode.REJECTED_ON_VALIDATION, {"rejection": Reason.from_json(rejection)})
    return exceeds_budget(results, variant) or exceeds_class_budget(results, variant)


def why_no_model(results: Results, method: str) -> Reason:
    """Return why a method has no model at all."""
    reason = results.selection.get(method, {}).get("reason")
    if reason is None:
        return Reason(ReasonCode.NO_RESULT)
    return Reason(ReasonCode.NO_MODEL, {"selection": Reason.from_json(reason)})


def exceeds_budget(results: Results, variant: Variant) -> Reason | None:
    """Return what a model loses on clean test images if that is over the budget by more than one standard error."""
    pair = results.pair(results.original, variant, CLEAN)
    difference = results.difference(variant, results.original, CLEAN)
    found = _overspent(*pair, difference, results.budget) if pair else None
    return Reason(ReasonCode.CLEAN_BUDGET, found) if found else None


def exceeds_class_budget(results: Results, variant: Variant) -> Reason | None:
    """Return which class loses more on clean test images than its budget, by more than one standard error."""
    before, after = (results.of_classes(each, "sensitivity_clean") for each in (results.original, variant))
    for label, budget in results.class_budgets.items():
        if label in before.keys() & after.keys():
            found = _overspent(before[label], after[label], results.class_difference(variant, label), budget)
            if found:
                return Reason(ReasonCode.CLASS_BUDGET, {"label": label, **found})
    return None


def _overspent(before: Row, after: Row, pair: Difference | None, budget: float) -> dict[str, float]:
    """Return the drop, its error and the budget if the drop is larger; unpaired, the error is the larger one."""
    drop = before.value - after.value if pair is None else -pair.value
    error = math.hypot(before.spread, after.spread) if pair is None else pair.stderr
    return {"drop": drop, "stderr": error, "budget": budget} if drop - error > budget else {}


def better_rivals(results: Results, shown: Variant, competing: Sequence[Variant]) -> list[Variant]:
    """Return the usable methods with one of the two scores clearly better and none worse, the best first."""

    def is_better(rival: Variant) -> bool:
        inputs = VerdictInputs(over_original=_improvement(results, rival, shown))
        return decide(inputs) == VerdictLevel.PARTLY_CORRECTED and find_rejection(results, rival) is None

    def score(rival: Variant) -> float:
        row = results.chosen(rival).get(BIASED)
        return row.value if row else 0.0

    return sorted((rival for rival in competing if rival != shown and is_better(rival)), key=score, reverse=True)


def competing_variants(results: Results) -> list[Variant]:
    """Return the models that a reader can choose among: of the run's own seed, as repeats are not other methods."""
    found = [variant for variant in results.methods() if status_of(results, variant) == "method"]
    return [variant for variant in found if results.is_first(variant)]


def shown_variant(results: Results) -> Variant | None:
    """Return what the report is about: the recommended method, else RR-ClArC, or the best where that is unusable.

    Of several (methods, or targets and norms of one) the best on validation images is taken: the best on test images
    would look better than it is.
    """
    competing = competing_variants(results)
    lead = results.meta.get("recommended") or FIRST
    wanted = [variant for variant in competing if variant.method == lead] or competing
    scores = {variant: score for variant in wanted if (score := results.validation_score(variant)) is not None}
    return max(scores, key=lambda variant: scores[variant]) if scores else next(iter(wanted), None)


BIASED_ACCURACY, WORST_GROUP = "accuracy with the artifact", "worst group"  # the claims' names


@dataclass(frozen=True)
class Claim:
    """Something that a reader would like to conclude, whether the data allow it, and the facts that decide it."""

    name: str
    can_be_made: bool
    facts: dict[str, Any]


def claims(data: BiasedData) -> tuple[Claim, ...]:
    """Return what the data allow to claim about any model; known before one is trained."""
    n, few = len(data.test_biased), []
    for kind, images in (("without", data.test_clean), ("with", data.test_biased)):
        few += [[name, kind, count] for name, count in _count(images).items() if count < MIN_GROUP]
    inserted = {"is_inserted": data.is_inserted, "transplant": data.transplant, "n": n}
    is_known = data.is_inserted or len(large_classes(data.test_biased.labels)) >= 2
    return (
        Claim(BIASED_ACCURACY, is_known, {**inserted, "images": _count(data.test_biased)}),
        Claim("flip rate", data.is_inserted, inserted),
        Claim(WORST_GROUP, not few, {"few": few}),
        Claim("strength chosen by accuracy", has_counter_examples(data), {"images": _count(data.val_biased)}),
        Claim("derivative along the CAV (TCAV)", True, {**inserted, "n_clean": len(data.test_clean)}),
    )


def _count(images: ImageDataset) -> dict[str, int]:
    """Return how many images there are of each class."""
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    return dict(zip(images.class_names, map(int, counts)))
