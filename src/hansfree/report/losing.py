"""Which class loses most by a correction: an average can rise while a class is given up."""

from __future__ import annotations

import math

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
    known = {label: results.class_difference(shown, label) for label in changes}
    # an interval alone, without a test beside it: a warning too many does less harm than one too few
    clear = [label for label, one in known.items() if one is not None and one.high < 0]
    label = min(clear, key=lambda label: changes[label], default=largest)
    name, goes = f"“{results.class_title(label)}”", "falls" if clear else "goes"
    if clear:
        who = f"{name} loses most of all classes" if label == largest else f"{name} clearly loses"
    else:
        unclear = "No class clearly loses. " if all(known.values()) else ""
        who = f"{unclear}The largest fall is that of {name}"
    old, new = (percent(rows[label].value) for rows in (before, after))
    n = after[label].n
    images = f" ({n:,} test images)" if n else ""
    return f"{who}: its sensitivity without the artifact {goes} from {old} to {new}{images}.{_unknown(results)}"


def _unknown(results: Results) -> str:
    """Say of which classes nobody can know, with a space before it."""
    labels = sorted(results.unknown_classes(_SENSITIVITY))
    if not labels:
        return ""
    names = [f"“{results.class_title(label)}”" for label in labels]
    of = listed(names) if len(names) <= _MOST_NAMED else f"{len(names):,} classes"
    return f" Of {of}, with too few test images, it cannot be known."
