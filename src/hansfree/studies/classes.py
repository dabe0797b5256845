"""What labels mean to a model: which of its outputs a name or a number is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from hansfree.errors import DataError, OptionError, closest, nearest

_INDEX = re.compile("[0-9]{1,5}")  # longer numbers are names: nobody has that many classes
_SEPARATORS = re.compile("[;|]")
_LISTED = 10  # names in an error sentence


def number_classes(
    found: Collection[str], classes: Sequence[str] | None, *, place: Path
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the classes' names in the order of the model's outputs, and the number of each label that was found.

    Labels are names; where all are whole numbers and not all are names, they are numbers of outputs, from 0.

    Args:
        classes: the names in the order of the outputs; None: the found ones, sorted.
    """
    if classes is not None and len(set(classes)) < len(classes):
        twice = next(name for name in classes if list(classes).count(name) > 1)
        raise OptionError(f"classes has {twice!r} twice: each output of the model needs a name of its own.")
    are_numbers = all(map(_INDEX.fullmatch, found))
    if classes is None:
        names = tuple(map(str, range(1 + max(map(int, found))))) if are_numbers else tuple(sorted(found))
    else:
        names = tuple(classes)
    if are_numbers and not set(found) <= set(names):  # as "007" of the first eight
        if (largest := max(map(int, found))) >= len(names):
            raise DataError(f"{place} has the label {largest}, but the {len(names)} classes are 0 to {len(names) - 1}.")
        return names, {label: int(label) for label in found}
    number_of = {name: number for number, name in enumerate(names)}
    for label in sorted(found):
        if label not in number_of:
            raise DataError(
                f"{place} has the label {label!r}, which is not among the classes that were given (data.classes)."
                f"{_hint(label, names)} Given: {listed(names)}."
            )
    return names, {label: number_of[label] for label in found}


def _hint(label: str, names: Sequence[str]) -> str:
    """Say what may be wrong; not "did you mean", as the typo is as likely in the names as in the label."""
    if split_labels(label) != [label]:
        return " It names several: say which one with 'label'."
    close = closest(label, names)
    return "" if close is None else f" The nearest of those is {close!r}."


def number_labels(
    cells: Sequence[str],
    classes: Sequence[str] | None,
    *,
    also: Collection[str] = (),
    label: str | None = None,
    place: Path,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the classes' names and the number of each cell's class.

    Args:
        also: labels that are there without a cell, as empty class folders.
        label: the one of interest, where cells hold several; the classes are then without and with it.
    """
    if label is None:
        names, number_of = number_classes({*cells, *also}, classes, place=place)
        return names, np.array([number_of[cell] for cell in cells])
    several = [split_labels(cell) for cell in cells]
    found = {one for labels in several for one in labels}
    if not found:
        raise DataError(f"{place} has no label at all.")
    names, number_of = number_classes(found, classes, place=place)
    wanted = find_class(label, names, option="label")
    is_there = [any(number_of[one] == wanted for one in labels) for labels in several]
    return (f"not {names[wanted]}", names[wanted]), np.array(is_there, dtype=np.int64)


def find_class(name: str, names: Sequence[str], *, option: str) -> int:
    """Return the number of a class that an option names, or whose number it gives."""
    if name in names:
        return list(names).index(name)
    if _INDEX.fullmatch(name) and int(name) < len(names):
        return int(name)
    raise OptionError(f"{option} is {name!r}, which is not a class.{nearest(name, names)} Known: {listed(names)}.")


def split_labels(cell: str) -> list[str]:
    """Return the labels that a cell of a multi-label table names, separated by ``;`` or ``|``; there may be none."""
    return [label for part in _SEPARATORS.split(cell) if (label := part.strip())]


def listed(names: Iterable[str]) -> str:
    """Return the first names as they are shown in a sentence."""
    shown = list(names)
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more
