"""Which corrected model to use: selected on validation images, among latent and deep methods, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hansfree.corrections import RRClArC, Vanilla
from hansfree.evaluation import ORIGINAL, Results, find_rejection, takes_out_direction
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
    return recommend(experiment, results), "" if warning is None else warning.sentence


def recommend(experiment: Experiment, results: Results) -> Advice:
    """Select among the admissible methods by what the selection rule measured on the validation images.

    Test images select nothing, or their scores would be too good; they may only reject the selected one.
    """
    is_derivative = experiment.setting.rule.needs_derivative
    methods = [method for method in results.selection if method != Vanilla.name]  # the baseline of all others
    admissible = [method for method in methods if results.selection[method]["admissible"]]
    scores = {method: score for method in admissible if (score := _validation_score(results, method)) is not None}
    # The derivative along the CAV says nothing about models without that direction, or with other activations.
    others = [method for method in admissible if is_deep(method) or takes_out_direction(method)]
    not_compared = tuple(others) if is_derivative else ()
    original = _original_score(experiment)
    best = max(scores, key=lambda method: (scores[method], method == RRClArC.name), default=None)
    advice = Advice(
        _code(results, best, scores, original, not_compared),
        best=best,
        scores=scores,
        original_score=original,
        not_compared=not_compared,
        is_derivative=is_derivative,
        is_inserted=experiment.setting.data.is_inserted,
    )
    return advice if methods else replace(advice, code=AdviceCode.ONLY_FINE_TUNING)


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


def _validation_score(results: Results, method: str) -> float | None:
    variant = results.variant(method)
    return None if variant is None else results.validation_score(variant)


def _original_score(experiment: Experiment) -> float:
    before = experiment.workspace.original_validation
    if experiment.setting.rule.needs_derivative:
        return -math.inf if before.derivative is None else -before.derivative
    return -math.inf if before.biased is None else before.biased.value
