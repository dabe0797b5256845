"""Whether a corrected model may be used: who failed, who collapsed, and who pays too much for the correction."""

from __future__ import annotations

import math
from typing import Literal

from hansfree.metrics import Difference
from hansfree.report.numbers import percent
from hansfree.report.reading import REFERENCES, Results, Variant, spread_of
from hansfree.results import ORIGINAL, Row
from hansfree.selection import BalancedRule

Kind = Literal["method", "reference", "failed", "chance", "collapsed"]
CLEAN = "balanced_accuracy_clean"


def kind_of(results: Results, variant: Variant) -> Kind:
    """Tell whether a variant competes; one that diverged, answers at chance level or lost a class never does.

    A head that always gives the same answer flips nothing and looks at nothing: it would win half of the columns.
    """
    if variant.method in REFERENCES:
        return "reference"
    scores = results.chosen(variant)
    if not scores or any(map(results.has_diverged, scores.values())):
        return "failed"
    balanced, chance = scores.get(CLEAN), results.meta.get("chance_level")
    if balanced and chance is not None and balanced.value <= chance + spread_of(balanced):
        return "chance"
    return "collapsed" if lost_classes(results, variant) else "method"


def lost_classes(results: Results, variant: Variant) -> list[int]:
    """Return the classes that the original model answers and this one never does, on clean test images.

    Such a class is missed in all of its images and in no image of another class; where it has too few to be scored,
    the validation images decide alone.
    """
    original = results.variant(ORIGINAL)
    before = _never_answered(results, original) if original else set()
    return sorted(_never_answered(results, variant) - before)


def breaks_rule(results: Results, variant: Variant) -> bool:
    """Tell whether the selection rule would reject a method that has no strength to choose instead."""
    return not results.selection.get(variant.method, {}).get("admissible", True)


def objection_to(results: Results, variant: Variant) -> str:
    """Say why a corrected model must not be used; empty where it may."""
    kind = kind_of(results, variant)
    if kind == "failed":
        return "its numbers are not finite" if results.chosen(variant) else why_no_model(results, variant.method)
    if kind == "chance":
        value = percent(results.chosen(variant)[CLEAN].value)
        return f"it answers no better than chance (balanced accuracy {value} on images without the artifact)"
    if kind == "collapsed":
        names = " and ".join(f"“{results.class_title(label)}”" for label in lost_classes(results, variant))
        return f"it never answers {names}, which the original model does"
    if kind == "method" and breaks_rule(results, variant):
        told = results.selection[variant.method].get("objection")
        return f"on validation images it {results.with_class_names(told)}" if told else "it breaks the selection rule"
    if kind == "method" and (loss := overspent(results, variant)):
        allowed = f"{100 * budget_of(results):g}"
        return f"it {loss} of balanced accuracy on test images without the artifact, and {allowed} are allowed"
    if kind == "method" and (loss := overspent_class(results, variant)):
        return f"it {loss}"
    return ""


def why_no_model(results: Results, method: str) -> str:
    """Say why a method has no model at all."""
    reason = results.with_class_names(str(results.selection.get(method, {}).get("reason", "")))
    return reason.strip().rstrip(".") or "it has no usable result"


def overspent(results: Results, variant: Variant) -> str:
    """Say what a model loses on clean test images if that is more than the budget, beyond one standard error."""
    original = results.variant(ORIGINAL)
    before, after = (results.chosen(each).get(CLEAN) if each else None for each in (original, variant))
    if original is None or before is None or after is None or not math.isfinite(before.value + after.value):
        return ""
    change, error = _change(before, after, results.difference(variant, original, CLEAN))
    return _lost_points(change, error) if -change - error > budget_of(results) else ""


def overspent_class(results: Results, variant: Variant) -> str:
    """Say which class loses more on clean test images than its budget, beyond one standard error."""
    original = results.variant(ORIGINAL)
    before, after = (results.of_classes(each, "sensitivity_clean") if each else {} for each in (original, variant))
    for label, allowed in class_budgets_of(results).items():
        if label in before.keys() & after.keys():
            change, error = _change(before[label], after[label], results.class_difference(variant, label))
            if -change - error > allowed:
                title = results.class_title(label)
                return (
                    f"{_lost_points(change, error)} of its sensitivity to “{title}” on test images without the "
                    f"artifact, and {100 * allowed:g} are allowed"
                )
    return ""


def _change(before: Row, after: Row, pair: Difference | None) -> tuple[float, float]:
    """Return a change and its error: image by image where that is known, else as if the images were different ones."""
    if pair is not None:
        return pair.value, pair.stderr
    return after.value - before.value, math.hypot(spread_of(before), spread_of(after))  # the larger error


def _lost_points(change: float, error: float) -> str:
    return f"loses {100 * -change:.1f} ± {100 * error:.1f} points"


def budget_of(results: Results) -> float:
    """Return what a correction may lose in balanced accuracy on clean images."""
    return float(results.meta.get("budget", BalancedRule.budget))


def class_budgets_of(results: Results) -> dict[int, float]:
    """Return what single classes may lose; JSON made texts of their numbers."""
    return {int(label): float(most) for label, most in results.meta.get("class_budgets", {}).items()}


def _never_answered(results: Results, variant: Variant) -> set[int]:
    sensitivity = results.of_classes(variant, "sensitivity_clean")
    specificity = results.of_classes(variant, "specificity_clean")
    both = sensitivity.keys() & specificity.keys()
    return {label for label in both if sensitivity[label].value == 0 and specificity[label].value == 1}
