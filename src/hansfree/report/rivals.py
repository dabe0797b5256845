"""How the other models of a run did: what stands beside the verdict on one of them."""

from __future__ import annotations

import math

from hansfree.corrections import Vanilla
from hansfree.report.changes import DECISIVE, FLIPS
from hansfree.report.numbers import percent
from hansfree.report.reading import Results, Variant
from hansfree.report.subject import better_rivals
from hansfree.report.tables import marks_of
from hansfree.report.usable import breaks_rule, kind_of
from hansfree.results import CLEAN_TRAINED


def describe_rivals(results: Results, shown: Variant, competing: list[Variant]) -> str:
    """Say who is best, what plain fine-tuning wins, and what a model trained on clean data does."""
    parts = (_rank(results, shown, competing), _plain(results, shown), _reference(results))
    return " ".join(part for part in parts if part)


def _rank(results: Results, shown: Variant, competing: list[Variant]) -> str:
    marks = marks_of(results, DECISIVE, competing)
    if len(competing) < 2 or not marks:
        return ""
    if marks.get(shown) == "best":
        broken = ", but breaks the selection rule" if breaks_rule(results, shown) else ""
        near = [variant.title(results.methods()) for variant in marks if variant != shown]
        unclear = f", with no clear difference to {listed(near)} (within one standard error)" if near else ""
        return f"It is the best of {len(competing)} methods on images with the artifact{unclear}{broken}."
    best = next(variant for variant, mark in marks.items() if mark == "best")
    if best in better_rivals(results, shown, competing):
        return ""  # said in larger letters
    leader = f"{best.title(results.methods())} ({percent(results.chosen(best)[DECISIVE].value)})"
    leader += ", which breaks the selection rule" if breaks_rule(results, best) else ""
    if shown in marks:
        return (
            f"There is no clear difference (within one standard error) to the best of {len(competing)} methods on "
            f"images with the artifact, {leader}."
        )
    return f"The best of {len(competing)} methods on images with the artifact is {leader}."


def _plain(results: Results, shown: Variant) -> str:
    """Say what fine-tuning wins without any correction: what a method adds is the rest."""
    plain = results.variant(Vanilla.name)
    if plain is None or plain == shown or kind_of(results, plain) != "method":
        return ""
    scores = results.chosen(plain)
    parts = [
        f"{percent(scores[metric].value)} {name}"
        for metric, name in ((FLIPS, "flips"), (DECISIVE, "balanced accuracy with the artifact"))
        if metric in scores
    ]
    return f"Plain fine-tuning (Vanilla) alone: {', '.join(parts)}." if parts else ""


def _reference(results: Results) -> str:
    clean = results.variant(CLEAN_TRAINED)
    row = results.chosen(clean).get(FLIPS) if clean else None
    if row is None or not math.isfinite(row.value):
        return ""
    return f"A model trained on clean data changes {percent(row.value)} of its answers."


def listed(parts: list[str]) -> str:
    """Join words with commas and an "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
