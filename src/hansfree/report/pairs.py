"""The shown method against every other model on the same images: differences with intervals, and McNemar's test."""

from __future__ import annotations

from hansfree.metrics import Difference, holm
from hansfree.metrics.comparison import write_p
from hansfree.report.numbers import CONFIDENCE, MISSING, write_point_range, write_points
from hansfree.report.reading import Results, Variant
from hansfree.report.tables import Cell, Column, Line, Table, count_images
from hansfree.report.usable import kind_of

_WITHOUT, _WITH = "Without the artifact", "With the artifact"
# metric, head, part; the test stands beside the share that it is about
_COLUMNS = (
    ("accuracy_clean", _WITHOUT, "accuracy"),
    ("balanced_accuracy_clean", _WITHOUT, "balanced accuracy"),
    ("accuracy_biased", _WITH, "accuracy"),
    ("balanced_accuracy_biased", _WITH, "balanced accuracy"),
    ("flip_rate", "Flips", "rate"),
)


def pair_table(results: Results, shown: Variant | None) -> Table | None:
    """Return the table, or None where nothing was compared."""
    if shown is None:
        return None
    found = {
        rival: {metric: results.difference(shown, rival, metric) for metric, _, _ in _COLUMNS}
        for rival in results.methods()
        if rival != shown
    }
    found = {rival: each for rival, each in found.items() if any(each.values())}
    present = [told for told in _COLUMNS if any(each[told[0]] for each in found.values())]
    if not present:
        return None
    title = shown.title(results.methods())
    columns: list[Column] = []
    for metric, head, part in present:
        n = count_images(results, metric)
        columns.append(Column(metric, head, part, "points", "", f"{title} minus the model of the line", n))
        if _is_tested(metric):
            about = "Exact, two-sided, corrected for the lines (Holm): the chance of such a difference between equals"
            columns.append(Column(metric, head, "McNemar p", "", "", about, n))
    p_values = {metric: _corrected(found, metric) for metric, _, _ in present if _is_tested(metric)}
    lines = [
        Line(
            rival.title(results.methods()),
            "",
            kind_of(results, rival),
            _cells(each, present, {metric: of.get(rival) for metric, of in p_values.items()}),
        )
        for rival, each in found.items()
    ]
    return Table(tuple(columns), tuple(lines), f"{title} minus each other model; points with {CONFIDENCE} intervals")


def _is_tested(metric: str) -> bool:
    return not metric.startswith("balanced")  # a mean over classes is no share of images


def _corrected(found: dict[Variant, dict[str, Difference | None]], metric: str) -> dict[Variant, float]:
    """Return the p-values of a column: with many rivals, one of them differs by chance more easily."""
    known = {rival: one.p for rival, each in found.items() if (one := each[metric]) and one.p is not None}
    return dict(zip(known, holm(list(known.values()))))


def _cells(
    found: dict[str, Difference | None], present: list[tuple[str, str, str]], p_values: dict[str, float | None]
) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for metric, _, _ in present:
        one = found[metric]
        cells.append(Cell(write_points(one.value), interval=write_point_range(one.low, one.high)) if one else Cell())
        if metric in p_values:
            p = p_values[metric]
            cells.append(Cell(MISSING if p is None else write_p(p)))
    return tuple(cells)
