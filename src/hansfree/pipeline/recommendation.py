"""Which corrected model to use: selected on validation images, among latent and deep methods, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hansfree.corrections import RRClArC, Validation, Vanilla
from hansfree.evaluation import BIASED, FLIPS, ORIGINAL, Results, Variant, find_rejection, takes_out_direction
from hansfree.pipeline.class_order import assess_class_order
from hansfree.pipeline.config import is_deep
from hansfree.pipeline.experiment import Experiment
from hansfree.reasons import Advice, AdviceCode, VerdictLevel

_BY_LEVEL = {VerdictLevel.NOT_CORRECTED: AdviceCode.NO_GAIN_ON_TEST, VerdictLevel.UNKNOWN: AdviceCode.BEST_GUESS}


def advise(experiment: Experiment, results: Results) -> tuple[Advice, str]:
    """Recommend a model, unless the classes are in the wrong order; return a warning about them too, or ""."""
    images = experiment.setting.data.test_clean
    answers = experiment.predictions.load(ORIGINAL)["predicted_clean"]
    warning = assess_class_order(answers, images.labels, images.class_names)
    if warning is not None and warning.is_order:
        return Advice(AdviceCode.WRONG_CLASS_ORDER), warning.sentence
    advice = recommend(
        results,
        experiment.workspace.original_validation,
        is_derivative=experiment.setting.rule.needs_derivative,
        is_inserted=experiment.setting.data.is_inserted,
    )
    return advice, "" if warning is None else warning.sentence


def recommend(results: Results, original: Validation, *, is_derivative: bool, is_inserted: bool) -> Advice:
    """Select among the admissible methods by what the selection rule measured on the validation images.

    Of those within one standard error of the best accuracy, the one that flips the fewest answers is taken. Test images
    select nothing, or their scores would be too good; they may only reject the selected one.
    """
    methods = [method for method in results.selection if method != Vanilla.name]  # the baseline of all others
    if not methods:
        return Advice(AdviceCode.ONLY_FINE_TUNING)
    admissible = [method for method in methods if results.selection[method]["admissible"]]
    variants = {method: variant for method in admissible if (variant := results.variant(method)) is not None}
    measured = {method: results.validation_score(variant) for method, variant in variants.items()}
    scores = {method: score for method, score in measured.items() if score is not None}
    # The derivative along the CAV says nothing about models without that direction, or with other activations.
    others = [method for method in admissible if is_deep(method) or takes_out_direction(method)]
    not_compared = tuple(others) if is_derivative else ()
    before = -math.inf
    if is_derivative and original.derivative is not None:
        before = -original.derivative
    elif not is_derivative and original.biased is not None:
        before = original.biased.value
    best = max(scores, key=lambda method: (scores[method], method == RRClArC.name), default=None)
    flips = {} if best is None or is_derivative else _flips_of_ties(results, variants, scores, best, before)
    if flips:
        best = min(flips, key=lambda method: (flips[method], -scores[method], method != RRClArC.name))
    return Advice(
        _code(results, best, scores, before, not_compared),
        best=best,
        scores=scores,
        original_score=before,
        flips=flips,
        not_compared=not_compared,
        is_derivative=is_derivative,
        is_inserted=is_inserted,
    )


def _flips_of_ties(
    results: Results, variants: Mapping[str, Variant], scores: Mapping[str, float], best: str, original: float
) -> dict[str, float]:
    """Return the flip rates of the methods within one standard error of the best; empty where they decide nothing."""
    top = results.validation_row(variants[best], BIASED)
    least = scores[best] - (top.spread if top else 0.0)
    tied = [method for method, score in scores.items() if score >= least and (score > original or method == best)]
    rows = {method: results.validation_row(variants[method], FLIPS) for method in tied}
    flips = {method: row.value for method, row in rows.items() if row is not None}
    return flips if len(flips) == len(tied) > 1 else {}


def _code(
    results: Results, best: str | None, scores: Mapping[str, float], original: float, not_compared: tuple[str, ...]
) -> AdviceCode:
    if best is None:
        return AdviceCode.NONE_COMPARABLE if not_compared else AdviceCode.NONE_ADMISSIBLE
    variant = results.variant(best)
    if variant is None or find_rejection(results, variant) is not None:
        return AdviceCode.REJECTED_ON_TEST
    if scores[best] <= original:
        return AdviceCode.NO_GAIN_ON_VALIDATION
    return _BY_LEVEL.get(results.verdicts[best].level, AdviceCode.RECOMMENDED)
