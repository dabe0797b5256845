"""The table of class-specific correction: what each method costs the classes that need the concept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hansfree.report.numbers import MISSING, write_stderr, write_value
from hansfree.report.reading import Variant, method_title
from hansfree.reproduce.averages import Average, average, unseeded
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.tables.markdown import PAPER_METHODS, markdown_table
from hansfree.results import Row

CHANGE = "accuracy_change"  # a method's accuracy on clean test images minus Vanilla's on the same images
GROUPS = ("selected", "random", "all")  # which classes; stands in a row's group
_NOTE = (
    "Change of the accuracy on clean test images against Vanilla, in points, over the classes that react most to the "
    "artifact (selected), as many others (random), and all. ± is the standard error over the same images as one seed "
    "has it; in brackets the standard deviation over the seeds."
)


def changes_of(rows: Iterable[Row]) -> dict[Variant, dict[str, Average]]:
    """Return the mean changes of every variant but Vanilla by group of classes, in the paper's order."""
    wanted = [row for row in rows if row.metric == CHANGE and row.chosen != 0 and row.method != "vanilla"]
    changes: dict[Variant, dict[str, Average]] = {}
    for (variant, group), mean in average(wanted, lambda row: (unseeded(row), row.group or "all")).items():
        changes.setdefault(variant, {})[group] = mean
    order = {method: place for place, method in enumerate(PAPER_METHODS)}
    return dict(sorted(changes.items(), key=lambda item: order.get(item[0].method, len(order))))


def change_titles(changes: Iterable[Variant]) -> dict[Variant, str]:
    """Return the methods' names with the classes that were corrected, where a method can be told which."""
    variants = list(changes)
    titles = {variant: method_title(variant.method) + _corrected(variant.target) for variant in variants}
    if len(set(titles.values())) < len(titles):  # they differ in something else
        return {variant: variant.title(variants) for variant in variants}
    return titles


def write_changes(subjects: Subjects) -> str:
    """Return the change on selected, random and all classes of every method."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        changes = changes_of(rows)
        titles = change_titles(changes)
        for variant, means in changes.items():
            body.append([key.title, titles[variant], *(_points(means.get(group)) for group in GROUPS)])
    return f"{markdown_table(['subject', 'method', *GROUPS], body)}\n\n{_NOTE}\n"


def _corrected(target: str | None) -> str:
    if target is None:
        return ""
    numbers = target.strip("[]()")
    if not numbers.replace(",", "").replace(" ", "").isdigit():
        return " (all classes)"
    return f" (class {numbers})" if numbers.isdigit() else f" (classes {numbers})"


def _points(mean: Average | None) -> str:
    if mean is None:
        return MISSING
    # a change of probability and a change of accuracy are written alike: in points, with their sign
    stderr, spread = (write_stderr("probability_change", error) for error in (mean.stderr, mean.spread))
    value = write_value("probability_change", mean.value)
    return value + (f" ± {stderr}" if stderr else "") + (f" ({spread})" if spread else "")
