"""Properties of the images against label and error: has the class more of it, and does the model err less then?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree.metrics.comparison import write_p
from hansfree.progress import Progress, silent
from hansfree.suspects.findings import LEVELS, Level, Property
from hansfree.suspects.measures import WORDS, Measurements
from hansfree.suspects.ranks import LEAST, Family, compare_together, rank_columns
from hansfree.suspects.spectral import BoolArray, IntArray

_SIGNIFICANT = 0.05
_CLEAR = 0.65  # AUC, or 0.35, from which on a difference is called clear: with thousands of images all are significant


def compare_properties(
    measured: Measurements,
    labels: IntArray,
    is_wrong: BoolArray,
    *,
    class_names: Sequence[str],
    permutations: int,
    seed: int,
    progress: Progress = silent,
) -> tuple[Property, ...]:
    """Return the properties, the oddest first: each with its oddest class, and with all that differ significantly."""
    everything = Family(rank_columns(measured.values), labels, len(class_names))
    with_errors = {
        label: np.flatnonzero(labels == label)
        for label in range(len(class_names))
        if min(np.sum(is_wrong & (labels == label)), np.sum(~is_wrong & (labels == label))) >= LEAST
    }
    families = [everything] + [
        Family(rank_columns(measured.values[rows]), is_wrong[rows].astype(np.int64), 2) for rows in with_errors.values()
    ]
    p_values = compare_together(families, permutations=permutations, seed=seed, progress=progress)
    auc = everything.compare().auc
    errors = {
        label: (family.compare().auc[1], p[1]) for label, family, p in zip(with_errors, families[1:], p_values[1:])
    }
    found = []
    for column, name in enumerate(measured.names):
        here = []
        for label, class_name in enumerate(class_names):
            error = None
            if label in errors:
                error = (float(errors[label][0][column]), float(errors[label][1][column]))
            here.append(
                _describe(name, label, class_name, float(auc[label, column]), float(p_values[0][label, column]), error)
            )
        here.sort(key=_rank)
        found += [here[0], *(other for other in here[1:] if other.level != "none")]
    return tuple(sorted(found, key=_rank))


def _rank(found: Property) -> tuple[int, bool, float, float]:
    return LEVELS.index(found.level), found.p > _SIGNIFICANT, -found.oddness, -abs(found.auc - 0.5)


def _describe(
    name: str, label: int, class_name: str, auc: float, p: float, error: tuple[float, float] | None
) -> Property:
    """Weigh the difference, and more where the model errs less on images that have the class's own sign of it.

    An artifact in few images of a class hardly makes the class differ; that the model errs less on them tells all the
    same, if weakly: some images are harder by nature.
    """
    differs = p <= _SIGNIFICANT
    level: Level = "none"
    if differs:
        level = "clear" if max(auc, 1 - auc) >= _CLEAR else "weak"
    oddness = abs(2 * auc - 1) if differs else 0.0
    more, less = WORDS[name]
    word = more if auc >= 0.5 else less
    sentence = f"Images of class {class_name!r} are not told from the others by {name}: AUC {auc:.2f} ({written_p(p)})."
    if differs:
        sentence = (
            f"Images of class {class_name!r} are {word} than the others: AUC {max(auc, 1 - auc):.2f} ({written_p(p)})."
        )
    if error is not None and error[1] <= _SIGNIFICANT:
        wrong_have_more = error[0] >= 0.5
        fits = not differs or wrong_have_more != (auc >= 0.5)
        level = "weak" if level == "none" else level
        oddness += abs(2 * error[0] - 1) if fits else 0.0
        shown = word if differs else more
        verb = "less" if wrong_have_more != (shown == more) else "more"
        strength = max(error[0], 1 - error[0])
        errs = f"the model errs {verb} on images that are {shown}: AUC {strength:.2f} ({written_p(error[1])})."
        same = f" The class itself is not told from the others by {name}."
        sentence = f"{sentence} Among them {errs}" if differs else f"In class {class_name!r} {errs}{same}"
    return Property(
        name=name,
        label=label,
        auc=auc,
        p=p,
        error_auc=None if error is None else error[0],
        error_p=None if error is None else error[1],
        oddness=oddness,
        level=level,
        sentence=sentence,
    )


def written_p(p: float) -> str:
    """Return a p-value as it is read, with the word that it holds for all that was compared."""
    told = write_p(p)
    return f"corrected p {told}" if told.startswith("<") else f"corrected p = {told}"
