"""Whose model a report is about and why, and which other one is clearly better on the same images."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.report.changes import DECISIVE, FLIPS, is_clearly_better, pair_of
from hansfree.report.numbers import percent
from hansfree.report.reading import FIRST, Results, Variant
from hansfree.report.usable import objection_to

_NAMES = {FLIPS: "flips", DECISIVE: "balanced accuracy with the artifact"}


def describe_subject(results: Results, shown: Variant, competing: Sequence[Variant]) -> str:
    """Say on whom the verdict is and why, then who does clearly better: a reader must not take the subject for best."""
    title = shown.title(results.methods())
    if shown.method == results.meta.get("recommended"):
        judgement = results.rulings.get(shown.method)
        is_guess = judgement is not None and judgement.ruling == "cannot be known"
        why = "the run's best guess" if is_guess else "which the run recommends"
    elif shown.method == FIRST:
        why = "the method that hansfree is built around"
    else:
        why = "the best of the others on validation images" if len(competing) > 1 else "the only one that can be shown"
    rivals = [_describe_better(results, rival, shown) for rival in better_rivals(results, shown, competing)]
    return " ".join([f"The verdict is on {title}, {why}.", *rivals])


def better_rivals(results: Results, shown: Variant, competing: Sequence[Variant]) -> list[Variant]:
    """Return the methods that may be used and beat the shown one by the verdict's own rule, the best first."""
    found = [
        rival
        for rival in competing
        if rival != shown and is_clearly_better(results, rival, shown) and not objection_to(results, rival)
    ]
    return sorted(found, key=lambda rival: -_score(results, rival))


def _score(results: Results, variant: Variant) -> float:
    row = results.chosen(variant).get(DECISIVE)
    return row.value if row else 0.0


def _describe_better(results: Results, rival: Variant, shown: Variant) -> str:
    pairs = {name: pair_of(results.chosen(shown), results.chosen(rival), metric) for metric, name in _NAMES.items()}
    told = [
        f"{name} {percent(pair[1].value)} instead of {percent(pair[0].value)}" for name, pair in pairs.items() if pair
    ]
    return f"{rival.title(results.methods())} is clearly better here: {', '.join(told)}."
