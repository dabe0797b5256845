"""Which corrected model to use, if any: one sentence that a user can act on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hansfree.corrections import RRClArC, Vanilla
from hansfree.experiments import Experiment
from hansfree.metrics import BalancedAccuracyBiased, find_unknown
from hansfree.report.one_sided import describe_one_sided
from hansfree.report.reading import Results
from hansfree.report.usable import objection_to
from hansfree.studies.counting import count_images


@dataclass(frozen=True)
class Advice:
    """The method whose model is to be used (None: none is), and why."""

    method: str | None
    sentences: tuple[str, ...]


def recommend(experiment: Experiment, methods: Sequence[str]) -> Advice:
    """Choose among the admissible methods by what the selection rule looked at on the validation images.

    Test images choose nothing, or their scores would be too good; they may only refuse the one that was chosen.
    """
    wanted = [method for method in methods if method != Vanilla.name]
    if not wanted:
        return Advice(None, ("Only plain fine-tuning was run, which corrects nothing: no model is recommended.",))
    scores = {method: score for method in wanted if (score := _score(experiment, method)) is not None}
    if not scores:
        reasons = "; ".join(f"{method}: {_reason(experiment, method)}" for method in wanted)
        return Advice(None, (f"Do not use any of the corrected models: none is admissible ({reasons}).",))
    best = max(scores, key=lambda method: (scores[method], method == RRClArC.name))
    results = _test_results(experiment, wanted)
    if objection := _objection(results, best):
        return Advice(None, (f"Do not use {best}, though it is the best on validation images: {objection}.",))
    others = [f"{method} {_in_words(experiment, scores[method])}" for method in scores if method != best]
    beside = f"; {', '.join(others)}" if others else ""
    found = f"Recommended: {best}, by the {_measure(experiment)} ({_in_words(experiment, scores[best])}{beside})."
    original = _original(experiment)
    doubt = f"By that it is no better than the model as it came ({_in_words(experiment, original)})."
    variant = results.variant(best)
    # A user who sees accuracy fall in the table would doubt the advice, or the table.
    one_sided = describe_one_sided(results, variant) if variant else ""
    return Advice(best, tuple(filter(None, (found, "" if scores[best] > original else doubt, one_sided))))


def _score(experiment: Experiment, method: str) -> float | None:
    """Return what the rule saw of a method's model, the more the better; None for one that must not be taken."""
    variant = experiment.plain(method)
    selection = experiment.selection(variant)
    if not selection["admissible"]:
        return None
    if experiment.setting.rule.needs_derivative:
        return -float(selection["derivative"]["chosen"])
    seen = [
        row
        for row in experiment.variant_rows(variant)
        if row.split == "val" and row.chosen and row.metric == BalancedAccuracyBiased.name
    ]
    return max(seen, key=lambda row: row.epoch or 0).value


def _original(experiment: Experiment) -> float:
    before = experiment.material.original_validation
    if experiment.setting.rule.needs_derivative:
        return -math.inf if before.derivative is None else -before.derivative
    return -math.inf if before.biased is None else before.biased.value


def _reason(experiment: Experiment, method: str) -> str:
    return str(experiment.selection(experiment.plain(method))["reason"])


def _test_results(experiment: Experiment, methods: Sequence[str]) -> Results:
    """Return what the report will know of the test images."""
    data, rows = experiment.setting.data, experiment.rows(methods)
    return Results(
        rows=tuple(row for row in rows if row.split == "test" and row.epoch is None),
        meta={
            "class_names": data.train.class_names,
            "budget": experiment.setting.rule.budget,
            "biased_class": data.biased_class,
            "counts": count_images(data),
        },
        selection={name: experiment.selection(experiment.plain(name)) for name in methods},
        heatmaps=None,
        paired=tuple(experiment.paired(methods)),
        unknown=tuple(find_unknown(data.test_clean.labels, None if data.is_inserted else data.test_biased.labels)),
    )


def _objection(results: Results, method: str) -> str:
    """Say what the report objects to a model; it collapsed on test images, for example."""
    variant = results.variant(method)
    return objection_to(results, variant) if variant else "it has no score on test images"


def _measure(experiment: Experiment) -> str:
    if experiment.setting.rule.needs_derivative:
        return "size of the derivative along the CAV on validation images, the less the better"
    return "balanced accuracy on validation images with the artifact"


def _in_words(experiment: Experiment, score: float) -> str:
    return f"{-score:.3g}" if experiment.setting.rule.needs_derivative else f"{100 * score:.1f} %"
