"""Tables of the report, as HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hansfree._internal.statistics import Interval
from hansfree.evaluation import (
    ORIGINAL,
    WORST_GROUP,
    ModelStatus,
    Results,
    Row,
    SideEffects,
    Variant,
    breaks_rule,
    exceeds_budget,
    lost_classes,
    method_title,
    spread_of,
    status_of,
)
from hansfree.metrics import (
    Condition,
    Difference,
    Metric,
    NotAvailable,
    Score,
    holm,
)
from hansfree.report.numbers import (
    CONFIDENCE,
    MISSING,
    interval_at_end,
    is_share,
    unit_of,
    write_drop,
    write_p,
    write_point_range,
    write_points,
    write_range,
    write_stderr,
    write_value,
)

ONE_SIDED = "accuracy_biased"  # there a model that uses the artifact may be right

GROUPS = "accuracy_worst_group"


@dataclass(frozen=True)
class Footnote:
    """Why no method is marked best by a score."""

    mark: str
    sentence: str


def footnote_of(results: Results, metric: str) -> Footnote | None:
    """Return why a score cannot rank the methods; None where it can."""
    if metric == ONE_SIDED and results.is_one_sided:
        return Footnote(
            "\N{DAGGER}",
            "Too few images with the artifact are of classes where the shortcut is wrong. Plain accuracy on them "
            "rewards the shortcut and cannot rank the models, so none is marked best by it.",
        )
    if metric == GROUPS and not _is_claimed(results, WORST_GROUP):
        return Footnote(
            "\N{DOUBLE DAGGER}",
            "Some groups have too few images (see “What these data cannot show”). The worst of the others is "
            "shown; the worst of all may be another, so no method is marked best by it.",
        )
    return None


def _is_claimed(results: Results, name: str) -> bool:
    claims = results.meta.get("claims") or ()
    return all(claim["can_be_made"] for claim in claims if claim["name"] == name)


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return the table, numbers flush right; the first column holds words."""
    ruler = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in (heads, ruler, *lines))


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
    footnote: Footnote | None = None  # why it cannot rank the methods


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
    kind: ModelStatus
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
        """Return why some columns cannot rank the methods."""
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


def group_title(results: Results, group: int | None, artifact: str | None = None) -> str:
    """Return what to call the images of a class, such as "melanoma with artifact"; empty for all images."""
    if group is None:
        return ""
    return results.class_title(group) + (f" {artifact} artifact" if artifact else "")


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
        if status_of(results, variant) == "method" and metric in results.chosen(variant)
    }
    if len(scores) < 2 or footnote_of(results, metric):
        return {}  # nothing to compare with, or a score that cannot rank
    distances = {variant: abs(row.value - ideal) for variant, row in scores.items()}
    if len(set(distances.values())) == 1:
        return {}  # all are equal
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
        kind = status_of(results, variant)
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


def _detail(results: Results, variant: Variant, kind: ModelStatus) -> str:
    scores = results.chosen(variant)
    if kind == "failed":
        return "failed: diverged" if scores else "failed: no usable result"
    if kind == "chance":
        return "at chance level"
    if kind == "collapsed":
        return f"never predicts {', '.join(map(results.class_title, lost_classes(results, variant)))}"
    # A method without a strength cannot be chosen otherwise: it still competes, with a note.
    if kind == "method" and breaks_rule(results, variant):
        return "breaks the selection rule"
    if kind == "method" and (over := exceeds_budget(results, variant)):
        return f"loses {write_drop(over.values['drop'], over.values['stderr'])} on clean images"
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


def _missing(unknown: NotAvailable | None) -> Cell:
    return Cell() if unknown is None else Cell(str(unknown), note=unknown.reason, is_unknown=True)


def _cell(results: Results, row: Row, mark: Mark, interval: Interval | None) -> Cell:
    if not math.isfinite(row.value):
        return Cell(value="NaN", note="not finite")
    return Cell(
        write_value(row.metric, row.value),
        write_stderr(row.metric, row.stderr),
        write_range(*interval) if interval else "",
        mark,
        group=group_title(results, row.group, row.artifact),
    )


def _majority(results: Results, metrics: list[str]) -> list[Line]:
    """Return the line of a model that always names the largest class: what plain accuracy is worth here."""
    rate, chance = results.meta.get("majority_rate"), results.meta.get("chance_level")
    if rate is None:
        return []
    # images with a natural artifact are others, of which another class may be the largest
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
    present = [words for words in _COLUMNS if any(each[words[0]] for each in found.values())]
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
            status_of(results, rival),
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


_MOST_CLASSES = 30  # lines of a table; of more, those that changed most

_ARTIFACT: dict[Condition, str] = {"clean": "without", "biased": "with"}

_METRICS = {"sensitivity": "Sensitivity", "specificity": "Specificity", "auroc_class": "AUROC"}


@dataclass(frozen=True)
class Change:
    """One score of a class before and after; no change where one of the two is missing."""

    before: Cell
    after: Cell
    change: str = ""
    unknown: str = ""  # stands instead of all three
    reason: str = ""


@dataclass(frozen=True)
class ClassLine:
    """One class."""

    title: str
    n: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class ClassTable:
    """Classes against metrics, for images without or with the artifact."""

    caption: str
    before: str
    after: str
    heads: tuple[str, ...]
    lines: tuple[ClassLine, ...]
    left_out: int


def class_tables(results: Results, shown: Variant | None) -> list[ClassTable]:
    """Return a table of the images without the artifact and one of those with it; none where no class was scored."""
    original = results.variant(ORIGINAL)
    if original is None or shown is None:
        return []
    tables = []
    for condition in _ARTIFACT:
        found = {
            name: (
                results.of_classes(original, f"{name}_{condition}"),
                results.of_classes(shown, f"{name}_{condition}"),
            )
            for name in _METRICS
        }
        table = _class_table(results, shown, condition, found)
        if table.lines:
            tables.append(table)
    return tables


def _class_table(
    results: Results, shown: Variant, condition: Condition, found: dict[str, tuple[dict[int, Row], dict[int, Row]]]
) -> ClassTable:
    known = {label for both in found.values() for rows in both for label in rows}
    for name in _METRICS:  # a class without a score says so in its own line
        known |= results.unknown_classes(f"{name}_{condition}")
    labels = sorted(known, key=lambda label: -_size(found["sensitivity"], label))[:_MOST_CLASSES]
    lines = []
    for label in sorted(labels):
        row = found["sensitivity"][0].get(label)
        few = results.why_unknown(f"sensitivity_{condition}", label)
        n = row.n if row else few.n if few else None
        changes = tuple(_change(results, f"{name}_{condition}", label, *both) for name, both in found.items())
        lines.append(ClassLine(results.class_title(label), MISSING if n is None else f"{n:,}", changes))
    return ClassTable(
        caption=f"Test images {_ARTIFACT[condition]} the artifact; percent ± one standard error, or at 0 and 100 the "
        f"{CONFIDENCE} interval",
        before="original",
        after=shown.title(results.methods()),
        heads=tuple(_METRICS.values()),
        lines=tuple(lines),
        left_out=len(known) - len(labels),
    )


def _size(both: tuple[dict[int, Row], dict[int, Row]], label: int) -> float:
    """Return how much a class's score changed; one that only one model has comes first, an unknown one last."""
    before, after = (rows.get(label) for rows in both)
    if before is None and after is None:
        return -1.0
    return abs(after.value - before.value) if before and after else 1.0


def _change(results: Results, metric: str, label: int, before: dict[int, Row], after: dict[int, Row]) -> Change:
    old, new = before.get(label), after.get(label)
    unknown = results.why_unknown(metric, label)
    if old is None and new is None and unknown is not None:
        return Change(Cell(), Cell(), unknown=str(unknown), reason=unknown.reason)
    return Change(cell_of(old), cell_of(new), write_points(new.value - old.value) if old and new else MISSING)


_SIDE_EFFECTS_NOTE = (
    "In percent, ± standard error over the same {n} test images. Flip rate: share of the images whose answer "
    "inserting the artifact changes. Accuracies are balanced over classes."
)


def write_side_effects(effects: SideEffects) -> str:
    """Return a Markdown table with a line for each model."""
    heads = ["model", "clean"]
    for artifact in effects.artifacts:
        heads += [f"{artifact}: flip rate", f"{artifact}: accuracy"]
    lines = []
    for model in effects.models:
        cells = [effects.clean[model]]
        for artifact in effects.artifacts:
            cells += [effects.flips[model, artifact], effects.biased[model, artifact]]
        lines.append([model, *map(_written, cells)])
    n = next(iter(effects.clean.values())).n
    return f"{markdown_table(heads, lines)}\n\n{_SIDE_EFFECTS_NOTE.format(n=f'{n:,}')}\n"


def _written(score: Score) -> str:
    return f"{write_value(score.metric, score.value)} ± {write_stderr(score.metric, score.stderr)}"
