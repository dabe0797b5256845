"""Which class an artifact goes with, and whether the model as it came leans that way: said only as far as measured."""

from __future__ import annotations

import math

from hansfree.report.numbers import percent
from hansfree.report.reading import Results
from hansfree.results import ORIGINAL, Row

_PULL, _TCAV = "probability_change", "tcav"
_NEUTRAL = 0.5  # TCAV of a direction that speaks neither for the class nor against it


def describe_class(results: Results) -> str:
    """Say how the artifact goes with a class: taken as its sign where insertion showed that, else how often it is."""
    name = _name_of_class(results)
    if not name:
        return ""
    pull = _score(results, _PULL)
    if pull is not None and pull.value > 0:
        return f", taken as a sign of “{name}”"
    return f", {'most frequent' if _is_most_frequent(results) else 'looked for'} in “{name}”"


def describe_other_lean(results: Results) -> str:
    """Say that the model as it came leans away from that class; empty where it does not, or nobody measured it."""
    name = _name_of_class(results)
    if not name:
        return ""
    pull, tcav = _score(results, _PULL), _score(results, _TCAV)
    if pull is not None:  # of the two it is the better evidence
        if pull.value >= 0:
            return ""
        return (
            f"The model as it came leans the other way: the artifact makes “{name}” less probable, by "
            f"{100 * -pull.value:.1f} points."
        )
    if tcav is None or tcav.value >= _NEUTRAL:
        return ""
    images = f"the {tcav.n:,} test images" if tcav.n else "the test images"
    return (
        f"The model as it came seems to lean the other way: TCAV is {percent(tcav.value)}, so in most of {images} the "
        f"direction speaks against “{name}”."
    )


def _score(results: Results, metric: str) -> Row | None:
    """Return a score of the model as it came, where that is a number."""
    original = results.variant(ORIGINAL)
    row = results.chosen(original).get(metric) if original else None
    return row if row is not None and math.isfinite(row.value) else None


def _name_of_class(results: Results) -> str:
    biased = results.meta.get("biased_class")
    if biased is None:
        return ""
    return results.class_title(biased) if isinstance(biased, int) else f"class {biased}"


def _is_most_frequent(results: Results) -> bool:
    """Tell whether no class has a larger share of training images with the artifact; where nobody counted, it is so."""
    shares = {
        each["class"]: each.get("with_artifact", 0) / each["images"]
        for each in results.meta.get("counts") or ()
        if each["set"] == "train" and each["images"]
    }
    return not shares or shares.get(_name_of_class(results)) == max(shares.values())
