"""Advice of a run in words: which model to use, and whether inserted and natural artifacts agree."""

from __future__ import annotations

from hansfree.corrections import RRClArC, Vanilla
from hansfree.evaluation import Results, takes_out_direction
from hansfree.pipeline import InsertionSimilarity
from hansfree.reasons import Advice, AdviceCode
from hansfree.report.text import describe_rejection, describe_verdict

_TO_DO = (
    "What may help: more images with the artifact, marked for training and held out for the test; another layer; other "
    "strengths. To export it all the same, name it: hansfree export RUN METHOD."
)


_USE_TRANSPLANTS = (
    "To prove it, leave out artifact.insert: the artifact of the labelled images is then transplanted into the others."
)
_OWN_FUNCTION = "Or insert the artifact itself by a function of your own (artifact.insert: file.py:function)."


def describe_advice(results: Results, advice: Advice) -> tuple[str, ...]:
    """Return the sentences on the recommended model."""
    measure = (
        "estimated effect of the artifact on the log-odds of validation images, the smaller the better"
        if advice.is_derivative
        else "balanced accuracy on validation images with the artifact"
    )

    def value(score: float) -> str:
        return f"{-score:.3g}" if advice.is_derivative else f"{100 * score:.1f} %"

    not_compared = tuple(_not_compared(advice))
    if advice.code == AdviceCode.WRONG_CLASS_ORDER:
        return ("No model is recommended: the classes are in the wrong order.",)
    if advice.code == AdviceCode.ONLY_FINE_TUNING:
        return ("Only plain fine-tuning was run, which corrects nothing: no model is recommended.",)
    if advice.code == AdviceCode.NONE_COMPARABLE:
        return (f"No model is recommended: none can be chosen by the {measure}.", *not_compared)
    if advice.best is None:
        reasons = {name: each["reason"] for name, each in results.selection.items() if name != Vanilla.name}
        text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        return (f"Do not use any of the corrected models: none is admissible ({text}).",)
    best, scores = advice.best, advice.scores
    if advice.code == AdviceCode.REJECTED_ON_TEST:
        variant = results.variant(best)
        why = describe_rejection(results, variant) if variant else "it has no score on test images"
        return (f"Do not use {best}, though it is the best on validation images: {why}.",)
    others = "".join(f"; {name} {value(score)}" for name, score in scores.items() if name != best)
    if list(scores.values()).count(scores[best]) > 1:
        others += f"; of equals, {RRClArC.name} or else the first is taken"
    reason = f"{best}, by the {measure} ({value(scores[best])}{others})"
    if advice.code == AdviceCode.RECOMMENDED:
        return (f"Recommended: {reason}.", *not_compared)
    if advice.code == AdviceCode.BEST_GUESS:
        how = _how_to_prove(best, advice.is_inserted)
        if results.meta.get("insertion_differs"):
            how = _OWN_FUNCTION if results.meta.get("transplant") else f"{_USE_TRANSPLANTS} {_OWN_FUNCTION}"
        return (f"Best guess, not proven: {reason}.", *not_compared, how)
    if advice.code == AdviceCode.NO_GAIN_ON_VALIDATION:
        doubt = f"By that it is no better than the original model ({value(advice.original_score)})."
    else:
        default = "On test images it is not clearly better than the original model."
        doubt = describe_verdict(results, best).reasons or default
    return (f"No model is recommended. The best is {reason}.", *not_compared, doubt, _TO_DO)


def _not_compared(advice: Advice) -> list[str]:
    without_direction = [name for name in advice.not_compared if takes_out_direction(name)]
    deep = [name for name in advice.not_compared if name not in without_direction]
    reasons = {
        "all layers changed, so that a derivative along the CAV of the original model does not compare": deep,
        "without the direction in the activations, the derivative along it says nothing": without_direction,
    }
    return [f"Not compared by that: {', '.join(names)} ({reason})." for reason, names in reasons.items() if names]


def _how_to_prove(method: str, is_inserted: bool) -> str:
    if is_inserted:
        return (
            f"Before you use {method}, hold out more test images: these are too few to show whether the bias is gone."
        )
    return (
        f"Before you use {method}, put the artifact into images (artifact.insert in the run file), or hold out more "
        "images that carry it, of at least two classes: those at hand cannot show whether the bias is gone."
    )


def describe_similarity(found: InsertionSimilarity) -> str:
    """Return how the inserted artifact compares with the natural one."""
    if not found.is_measurable:
        return (
            f"Similarity of the inserted and the natural artifact: n/a (the direction of the {found.n_labelled} "
            "labelled images of the biased class is too noisy)."
        )
    comparison = (
        f"In {found.n_inserted} validation images, the inserted artifact changes the layer with a cosine of "
        f"{found.cosine:.2f} to the direction of the {found.n_labelled} labelled training images (at most about "
        f"{found.attainable:.2f} is attainable), and {found.size:.2g} times as far along it."
    )
    if not found.differs:
        return comparison
    return (
        f"{comparison} To this model the two differ: evidence by insertion says little about the natural artifact. "
        "Check the inserted artifact, its size and place, and the artifact labels."
    )
