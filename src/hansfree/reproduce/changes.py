"""Class-specific correction: the change of accuracy against Vanilla, read from rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hansfree.report.reading import Variant, method_title
from hansfree.reproduce.averages import Average, average, paper_place, unseeded
from hansfree.results import Row

CHANGE = "accuracy_change"  # a method's accuracy on clean test images minus Vanilla's on the same images
GROUPS = ("selected", "random", "all")  # which classes; stands in a row's group


def changes_of(rows: Iterable[Row]) -> dict[Variant, dict[str, Average]]:
    """Return the mean changes of every variant but Vanilla by group of classes, in the paper's order."""
    wanted = [row for row in rows if row.metric == CHANGE and row.chosen != 0 and row.method != "vanilla"]
    changes: dict[Variant, dict[str, Average]] = {}
    for (variant, group), mean in average(wanted, lambda row: (unseeded(row), row.group or "all")).items():
        changes.setdefault(variant, {})[group] = mean
    return dict(sorted(changes.items(), key=lambda item: paper_place(item[0].method)))


def change_titles(changes: Iterable[Variant], class_names: Sequence[str] = ()) -> dict[Variant, str]:
    """Return the methods' names with the classes that were corrected, where a method can be told which."""
    variants = list(changes)
    titles = {variant: method_title(variant.method) + _corrected(variant.target, class_names) for variant in variants}
    if len(set(titles.values())) < len(titles):  # they differ in something else
        return {variant: variant.title(variants) for variant in variants}
    return titles


def _corrected(target: str | None, class_names: Sequence[str]) -> str:
    if target is None:
        return ""
    numbers = [number.strip() for number in target.strip("[]()").split(",")]
    if not all(map(str.isdigit, numbers)):
        return " (all classes)"
    names = [class_names[int(number)] if int(number) < len(class_names) else number for number in numbers]
    return f" ({'class' if len(names) == 1 else 'classes'} {', '.join(names)})"
