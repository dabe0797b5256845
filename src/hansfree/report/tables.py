"""The table of methods: who is nearest to each metric's ideal, and who does not compete."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hansfree.metrics import Interval, Metric, Unknown
from hansfree.report.numbers import MISSING, interval_at_end, is_share, unit_of, write_range, write_stderr, write_value
from hansfree.report.reading import Results, Variant, method_title, spread_of
from hansfree.report.untelling import Footnote, footnote_of
from hansfree.report.usable import Kind, breaks_rule, kind_of, lost_classes, overspent
from hansfree.results import Row

Mark = Literal["", "best", "near"]


@dataclass(frozen=True)
class Column:
    """One metric: its head, what follows the comma of its label, its unit and its ideal (empty: it has none)."""

    metric: str
    head: str
    part: str
    unit: str
    ideal: str
    description: str
    n: str
    footnote: Footnote | None = None  # why it tells nobody best


@dataclass(frozen=True)
class Cell:
    """One score as it is printed."""

    value: str = MISSING
    stderr: str = ""
    interval: str = ""  # instead of the standard error where it is known
    mark: Mark = ""
    note: str = ""
    group: str = ""  # of which images it is, where that differs from line to line
    is_unknown: bool = False


@dataclass(frozen=True)
class Line:
    """One method, or one reference that does not compete."""

    title: str
    detail: str
    kind: Kind
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Methods against metrics."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: str = ""

    @property
    def has_intervals(self) -> bool:
        """Whether a score has an interval."""
        return bool(self.an_interval)

    @property
    def an_interval(self) -> str:
        """Return the first interval, as an example; empty where there is none."""
        return next((cell.interval for line in self.lines for cell in line.cells if cell.interval), "")

    @property
    def footnotes(self) -> list[Footnote]:
        """Return why some columns tell nobody best."""
        return [column.footnote for column in self.columns if column.footnote]

    @property
    def has_unknown(self) -> bool:
        """Whether a score is missing for lack of images."""
        return any(cell.is_unknown for line in self.lines for cell in line.cells)

    @property
    def heads(self) -> list[tuple[str, int]]:
        """Return each head with the number of neighbouring columns under it."""
        heads: list[tuple[str, int]] = []
        for column in self.columns:
            if heads and heads[-1][0] == column.head:
                heads[-1] = (column.head, heads[-1][1] + 1)
            else:
                heads.append((column.head, 1))
        return heads


def insertion_table(results: Results) -> Table:
    """Return what test images show without and with the artifact: metrics that need the answers only."""
    members = Metric.members().items()
    return _table(results, [name for name, metric in members if not metric.needs and not metric.is_per_class])


def inner_table(results: Results) -> Table:
    """Return what lies inside the model: metrics that need derivatives or heatmaps."""
    return _table(results, [name for name, metric in Metric.members().items() if metric.needs])


def marks_of(results: Results, metric: str, among: Sequence[Variant] | None = None) -> dict[Variant, Mark]:
    """Mark the competing method nearest to the metric's ideal, and those within one standard error of it.

    Args:
        among: None for all models of the run, repeats with other seeds too.
    """
    ideal = Metric.named(metric).ideal
    scores = {
        variant: results.chosen(variant)[metric]
        for variant in (results.methods() if among is None else among)
        if kind_of(results, variant) == "method" and metric in results.chosen(variant)
    }
    if len(scores) < 2 or footnote_of(results, metric):
        return {}  # nobody to compare with, or a score that tells nobody best
    distances = {variant: abs(row.value - ideal) for variant, row in scores.items()}
    if len(set(distances.values())) == 1:
        return {}  # a column in which all are equal tells them not apart
    best = min(distances, key=lambda variant: distances[variant])
    marks: dict[Variant, Mark] = {}
    for variant, distance in distances.items():
        pair = results.difference(best, variant, metric)
        error = pair.stderr if pair else spread_of(scores[best])
        if distance == distances[best]:
            marks[variant] = "best"
        elif distance - distances[best] <= error:
            marks[variant] = "near"
    return marks


def _table(results: Results, metrics: list[str]) -> Table:
    variants = results.methods()
    present = {name for variant in variants for name in results.chosen(variant)}
    present |= {each.metric for each in results.unknown}
    metrics = [name for name in metrics if name in present]
    marks = {name: marks_of(results, name) for name in metrics}
    lines = []
    for variant in variants:
        kind = kind_of(results, variant)
        scores = results.chosen(variant)
        cells = tuple(
            _cell(results, scores[name], marks[name].get(variant, ""), interval_of(results, variant, scores[name]))
            if name in scores
            else _missing(results.why_unknown(name))
            for name in metrics
        )
        lines.append(Line(variant.title(variants), _detail(results, variant, kind), kind, cells))
    lines += [
        Line(method_title(method), "failed: no usable result", "failed", (Cell(),) * len(metrics))
        for method in results.selection
        if results.variant(method) is None
    ]
    if any(name.endswith(("accuracy_clean", "accuracy_biased")) for name in metrics):
        lines += _majority(results, metrics)
    columns = [_column(results, name) for name in metrics]
    shared = {column.head for column in columns if column.part}
    columns = [replace(c, part=c.part or "overall") if c.head in shared else c for c in columns]
    return Table(tuple(columns), tuple(lines))


def _detail(results: Results, variant: Variant, kind: Kind) -> str:
    scores = results.chosen(variant)
    if kind == "failed":
        return "failed: diverged" if scores else "failed: no usable result"
    if kind == "chance":
        return "answers no better than chance"
    if kind == "collapsed":
        return f"never answers {', '.join(map(results.class_title, lost_classes(results, variant)))}"
    # A method without a strength cannot be chosen otherwise: it competes all the same, and the reader is told.
    if kind == "method" and breaks_rule(results, variant):
        return "breaks the selection rule"
    if kind == "method" and (loss := overspent(results, variant)):
        return f"{loss} on clean images"
    strengths = {row.strength for row in scores.values() if row.strength is not None}
    return f"strength {strengths.pop():.3g}" if len(strengths) == 1 else ""


def interval_of(results: Results, variant: Variant, row: Row) -> Interval | None:
    """Return what stands instead of the standard error: the interval that the run kept, or that of none or all."""
    return results.interval(variant, row.metric) or interval_at_end(row)


def cell_of(row: Row | None) -> Cell:
    """Return a score with its standard error, or at 0 and 1 its interval; an empty cell where there is no score."""
    if row is None:
        return Cell()
    interval = interval_at_end(row)
    return Cell(
        write_value(row.metric, row.value),
        write_stderr(row.metric, row.stderr),
        write_range(*interval) if interval else "",
    )


def _missing(unknown: Unknown | None) -> Cell:
    return Cell() if unknown is None else Cell(str(unknown), note=unknown.reason, is_unknown=True)


def _cell(results: Results, row: Row, mark: Mark, interval: Interval | None) -> Cell:
    if not math.isfinite(row.value):
        return Cell(value="NaN", note="not finite")
    return Cell(
        write_value(row.metric, row.value),
        write_stderr(row.metric, row.stderr),
        write_range(*interval) if interval else "",
        mark,
        group=results.with_class_names(row.group or ""),
    )


def _majority(results: Results, metrics: list[str]) -> list[Line]:
    """Return the line of a model that always names the largest class: what plain accuracy is worth here."""
    rate, chance = results.meta.get("majority_rate"), results.meta.get("chance_level")
    if rate is None:
        return []
    # images that have the artifact by nature are others, of which another class may be the largest
    conditions = ("clean", "biased") if results.is_inserted else ("clean",)
    known = {f"accuracy_{condition}": float(rate) for condition in conditions}
    if chance is not None:
        known |= {f"balanced_accuracy_{condition}": float(chance) for condition in conditions}
    cells = tuple(Cell(write_value(name, known[name])) if name in known else Cell() for name in metrics)
    return [Line("Majority rate", "always the largest class", "reference", cells)]


def count_images(results: Results, metric: str) -> str:
    """Return how many test images a score is of."""
    found = (results.chosen(variant).get(metric) for variant in results.methods())
    counts = {row.n for row in found if row and row.n is not None}
    return " to ".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else MISSING


def _column(results: Results, name: str) -> Column:
    metric = Metric.named(name)
    head, _, part = metric.label.partition(", ")
    footnote = footnote_of(results, name)
    return Column(
        metric=name,
        head=head,
        part=f"{part or 'of those known'} {footnote.mark}" if footnote else part,
        unit=unit_of(name),
        ideal=f"{100 * metric.ideal:g}" if is_share(name) else f"{metric.ideal:g}",
        description=metric.description,
        n=count_images(results, name),
        footnote=footnote,
    )
