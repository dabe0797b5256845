"""Which corrected model to use, if any: one sentence that a user can act on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hansfree.corrections import RRClArC, Vanilla
from hansfree.experiments import Experiment
from hansfree.report.reading import Results, takes_out_direction
from hansfree.report.usable import objection_to

_TO_DO = (
    "What may help: more images with the artifact, marked for training and held out for the test; another layer; other "
    "strengths. To export it all the same, name it: hansfree export RUN METHOD."
)


@dataclass(frozen=True)
class Advice:
    """The method whose model is to be used, or proven first where it cannot be known (None: none is), and why."""

    method: str | None
    sentences: tuple[str, ...]


def recommend(experiment: Experiment, results: Results) -> Advice:
    """Choose among the admissible methods by what the selection rule looked at on the validation images.

    Test images choose nothing, or their scores would be too good; they may only refuse the one that was chosen.
    """
    wanted = [method for method in results.selection if method != Vanilla.name]  # which the others have to beat
    if not wanted:
        return Advice(None, ("Only plain fine-tuning was run, which corrects nothing: no model is recommended.",))
    scores = {method: score for method in wanted if (score := _score(results, method)) is not None}
    apart = _left_out(experiment, [method for method in wanted if results.selection[method]["admissible"]])
    if not scores and apart:
        return Advice(None, (f"No model is recommended: none can be chosen by the {_measure(experiment)}.", apart))
    if not scores:
        reasons = "; ".join(f"{method}: {results.selection[method]['reason']}" for method in wanted)
        return Advice(None, (f"Do not use any of the corrected models: none is admissible ({reasons}).",))
    best = max(scores, key=lambda method: (scores[method], method == RRClArC.name))
    if objection := _objection(results, best):
        return Advice(None, (f"Do not use {best}, though it is the best on validation images: {objection}.",))
    others = [f"{method} {_in_words(experiment, scores[method])}" for method in scores if method != best]
    beside = f"; {', '.join(others)}" if others else ""
    if list(scores.values()).count(scores[best]) > 1:
        beside += f"; of equals, {RRClArC.name} or else the first is taken"
    told = f"{best}, by the {_measure(experiment)} ({_in_words(experiment, scores[best])}{beside})"
    original, judgement = _original(experiment), results.rulings[best]
    if scores[best] <= original:
        doubt = f"By that it is no better than the model as it came ({_in_words(experiment, original)})."
    elif judgement.ruling == "not corrected":
        doubt = judgement.why or "On test images it is not clearly better than the model as it came."
    elif judgement.ruling == "cannot be known":
        guess = f"Best guess, not proven: {told}."
        return Advice(best, tuple(filter(None, (guess, apart, _how_to_prove(experiment, best)))))
    else:
        return Advice(best, tuple(filter(None, (f"Recommended: {told}.", apart))))
    found = f"No model is recommended. The best is {told}."
    return Advice(None, tuple(filter(None, (found, apart, doubt, _TO_DO))))


def _how_to_prove(experiment: Experiment, method: str) -> str:
    """Say what would show whether the bias is gone, where these images cannot."""
    if experiment.setting.data.is_inserted:
        return (
            f"Before you use {method}, hold out more test images: these are too few to show whether the bias is gone."
        )
    return (
        f"Before you use {method}, put the artifact into images (artifact.insert in the run file), or hold out more "
        "images that carry it, of at least two classes: those at hand cannot show whether the bias is gone."
    )


def _left_out(experiment: Experiment, methods: Sequence[str]) -> str:
    """Say whom the derivative cannot compare; nothing where accuracy does, or nobody is left out."""
    apart = [method for method in methods if takes_out_direction(method)]
    if not experiment.setting.rule.needs_derivative or not apart:
        return ""
    why = (
        "It takes the direction out of the activations, so what its head would do along it says"
        if len(apart) == 1
        else "They take the direction out of the activations, so what their heads would do along it says"
    )
    return f"Not compared by that: {', '.join(apart)}. {why} nothing about the artifact."


def _score(results: Results, method: str) -> float | None:
    """Return what the rule saw of a method's model, the more the better; None for one that must not be taken."""
    variant = results.variant(method)
    return results.validation_score(variant) if variant and results.selection[method]["admissible"] else None


def _original(experiment: Experiment) -> float:
    before = experiment.material.original_validation
    if experiment.setting.rule.needs_derivative:
        return -math.inf if before.derivative is None else -before.derivative
    return -math.inf if before.biased is None else before.biased.value


def _objection(results: Results, method: str) -> str:
    """Say what the report objects to a model; it collapsed on test images, for example."""
    variant = results.variant(method)
    return objection_to(results, variant) if variant else "it has no score on test images"


def _measure(experiment: Experiment) -> str:
    if experiment.setting.rule.needs_derivative:
        return "estimated effect of the artifact on the log-odds of validation images, the smaller the better"
    return "balanced accuracy on validation images with the artifact"


def _in_words(experiment: Experiment, score: float) -> str:
    return f"{-score:.3g}" if experiment.setting.rule.needs_derivative else f"{100 * score:.1f} %"
