"""Which class loses most by a correction: an average can rise while a class is given up."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hansfree.metrics import LEVEL, holm
from hansfree.report.numbers import percent
from hansfree.report.reading import Results, Variant
from hansfree.report.rivals import listed
from hansfree.results import ORIGINAL

_SENSITIVITY = "sensitivity_clean"  # with the artifact the biased class must lose what the shortcut gave it
_MOST_NAMED = 3  # classes of which it cannot be known


def describe_loss(results: Results, shown: Variant) -> str:
    """Say which class a model recognises less often than the original did; empty where no class was scored."""
    original = results.variant(ORIGINAL)
    before, after = (results.of_classes(each, _SENSITIVITY) if each else {} for each in (original, shown))
    changes = {label: after[label].value - before[label].value for label in before.keys() & after.keys()}
    changes = {label: change for label, change in sorted(changes.items()) if math.isfinite(change)}
    if not changes:
        return ""
    largest = min(changes, key=lambda label: changes[label])
    if changes[largest] >= 0:
        told = "Without the artifact, no class has a lower sensitivity than before."
        return f"{told}{_unknown(results)}"
    p_values = _p_values(results, shown, changes)
    clear = [label for label, p in p_values.items() if p < 1 - LEVEL and changes[label] < 0]
    label = min(clear, key=lambda label: changes[label], default=largest)
    name, chance = f"“{results.class_title(label)}”", ""
    if clear:
        who, goes = f"{name} loses most of all classes" if label == largest else f"{name} clearly loses", "falls"
    else:
        who, goes = f"The largest fall of a class is that of {name}", "goes"
        chance = ", which may be chance" if p_values else ""
    old, new = (percent(rows[label].value) for rows in (before, after))
    n = after[label].n
    images = f" ({n:,} test images)" if n else ""
    return f"{who}: its sensitivity without the artifact {goes} from {old} to {new}{images}{chance}.{_unknown(results)}"


def _p_values(results: Results, shown: Variant, labels: Iterable[int]) -> dict[int, float]:
    """Return McNemar's p of each class, corrected for their number: of many, one always falls by chance."""
    found = {label: results.class_difference(shown, label) for label in labels}
    known = {label: one.p for label, one in found.items() if one is not None and one.p is not None}
    return dict(zip(known, holm(list(known.values()))))


def _unknown(results: Results) -> str:
    """Say of which classes nobody can know, with a space before it."""
    labels = sorted(results.unknown_classes(_SENSITIVITY))
    if not labels:
        return ""
    names = [f"“{results.class_title(label)}”" for label in labels]
    of = listed(names) if len(names) <= _MOST_NAMED else f"{len(names):,} classes"
    return f" Of {of}, with too few test images, it cannot be known."
