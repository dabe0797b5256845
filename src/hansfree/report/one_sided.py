"""Where nearly all images with the artifact are of one class: what accuracy on them says, and what it does not."""

from __future__ import annotations

import math

from hansfree.report.changes import describe_move
from hansfree.report.reading import Results, Variant
from hansfree.report.untelling import ONE_SIDED
from hansfree.results import ORIGINAL


def describe_one_sided(results: Results, shown: Variant) -> str:
    """Say in one sentence how accuracy with the artifact changes, and why that is no verdict; empty if it is one."""
    original = results.variant(ORIGINAL)
    before, after = (results.chosen(each).get(ONE_SIDED) if each else None for each in (original, shown))
    if not results.is_one_sided or before is None or after is None or not math.isfinite(before.value + after.value):
        return ""
    n = f"{after.n:,} " if after.n else ""
    change = describe_move(results, shown, (before, after))
    told = f"On the {n}test images with the artifact accuracy {change}; {_whose(results)}"
    if after.value < before.value and not change.startswith("stays"):
        return f"{told}, so part of that may be a shortcut going away: it cannot be told."
    return f"{told}, where a shortcut would be right too: whether one is gone cannot be told."


def _whose(results: Results) -> str:
    """Say of which class these images are."""
    found = {each["class"]: each["images"] for each in results.meta.get("counts") or () if each["set"] == "test biased"}
    biased = results.meta.get("biased_class")
    name = results.class_title(biased) if isinstance(biased, int) else None
    if name in found:
        return f"{found[name]:,} of them are of class '{name}'"
    return "nearly all of them are of one class"
