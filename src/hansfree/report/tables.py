"""Tables of the report, as HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeVar

from hansfree._internal.statistics import Interval
from hansfree.evaluation import (
    BIASED,
    CLEAN,
    FLIPS,
    WORST_GROUP,
    ModelStatus,
    Results,
    Row,
    Variant,
    breaks_rule,
    exceeds_budget,
    lost_classes,
    method_title,
    status_of,
)
from hansfree.metrics import Difference, Metric, holm
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
    claims = results.meta.get("claims") or ()
    if metric == GROUPS and not all(claim["can_be_made"] for claim in claims if claim["name"] == WORST_GROUP):
        return Footnote(
            "\N{DOUBLE DAGGER}",
            "Some groups have too few images (see “What these data cannot show”). The worst of the others is "
            "shown; the worst of all may be another, so no method is marked best by it.",
        )
    return None


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return the table, numbers flush right; the first column holds words."""
    ruler = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in (heads, ruler, *lines))


Mark = Literal["", "best", "near"]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Column:
    """A column: its metric, its head in two parts, and what stands below them."""

    metric: str
    head: str
    part: str = ""
    unit: str = ""
    ideal: str = ""
    description: str = ""
    n: str = ""
    footnote: Footnote | None = None


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
    number: float | None = None  # to sort by


@dataclass(frozen=True)
class Line:
    """One method or class, with its cells."""

    title: str
    detail: str
    kind: ModelStatus
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Methods or classes against metrics."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: str = ""
    left_out: int = 0  # lines

    @property
    def an_interval(self) -> str:
        """The first interval, as an example; empty where there is none."""
        return next((cell.interval for line in self.lines for cell in line.cells if cell.interval), "")

    @property
    def has_unknown(self) -> bool:
        """Whether a score is missing for lack of images."""
        return any(cell.is_unknown for line in self.lines for cell in line.cells)

    @property
    def heads(self) -> list[tuple[str, int]]:
        """Each head with the number of neighbouring columns under it."""
        return [(head, len(list(columns))) for head, columns in groupby(self.columns, key=lambda column: column.head)]


def group_title(results: Results, group: int | None, artifact: str | None = None) -> str:
    """Return what to call the images of a class, such as "melanoma with artifact"; empty for all images."""
    if group is None:
        return ""
    return results.class_title(group) + (f" {artifact} artifact" if artifact else "")


def insertion_table(results: Results) -> Table:
    """Return what test images show without and with the artifact: metrics that need the answers only, flips first."""
    names = [name for name, metric in Metric.members().items() if not metric.needs and not metric.is_per_class]
    return _table(results, sorted(names, key=lambda name: name != FLIPS))


def inner_table(results: Results) -> Table:
    """Return what lies inside the model: metrics that need derivatives or heatmaps."""
    return _table(results, [name for name, metric in Metric.members().items() if metric.needs])


def marks_of(results: Results, metric: str, among: Sequence[Variant] | None = None) -> dict[Variant, Mark]:
    """Mark the competing method nearest to the metric's ideal, and those within one standard error of it."""
    ideal = Metric.named(metric).ideal
    scores = {
        variant: results.chosen(variant)[metric]
        for variant in (results.methods() if among is None else among)
        if status_of(results, variant) == "method" and metric in results.chosen(variant)
    }
    distances = {variant: abs(row.value - ideal) for variant, row in scores.items()}
    if len(set(distances.values())) < 2 or footnote_of(results, metric):
        return {}  # nothing to compare with, all are equal, or a score that cannot rank
    best = min(distances, key=lambda variant: distances[variant])
    marks: dict[Variant, Mark] = {}
    for variant, distance in distances.items():
        pair = results.difference(best, variant, metric)
        error = pair.stderr if pair else scores[best].spread
        if distance == distances[best]:
            marks[variant] = "best"
        elif distance - distances[best] <= error:
            marks[variant] = "near"
    return marks


def _table(results: Results, metrics: list[str]) -> Table:
    variants = results.methods()
    present = {name for variant in variants for name in results.chosen(variant)}
    present |= {each.metric for each in results.unknown}
    metrics = [name for name in metrics if name in present and not _is_repeated(results, name)]
    marks = {name: marks_of(results, name) for name in metrics}

    def cell(variant: Variant, name: str) -> Cell:
        row = results.chosen(variant).get(name)
        if row is not None:
            title = group_title(results, row.group, row.artifact)
            found = cell_of(row, results.interval(variant, name))
            return replace(found, mark=marks[name].get(variant, ""), group=title)
        unknown = results.why_unknown(name)
        return Cell() if unknown is None else Cell(str(unknown), note=unknown.reason, is_unknown=True)

    columns = [_column(results, name) for name in metrics]
    shared = {column.head for column in columns if column.part}
    columns = [replace(c, part=c.part or "overall") if c.head in shared else c for c in columns]
    cells = [{variant: cell(variant, name) for variant in variants} for name in metrics]
    table = _assemble(results, zip(columns, cells))
    lines = [replace(line, detail=_detail(results, variant)) for line, variant in zip(table.lines, variants)]
    lines += [
        Line(method_title(method), "rejected: no admissible strength", "failed", (Cell(),) * len(metrics))
        for method in results.selection
        if results.variant(method) is None
    ]
    if any(name.endswith(("accuracy_clean", "accuracy_biased")) for name in metrics):
        lines += _majority(results, metrics)
    return replace(table, lines=tuple(lines))


def _is_repeated(results: Results, metric: str) -> bool:
    """Return whether accuracy equals balanced accuracy of every model, as where all classes are of one size."""
    if not metric.startswith("accuracy_"):
        return False
    pairs = [
        (scores.get(metric), scores.get(f"balanced_{metric}")) for scores in map(results.chosen, results.methods())
    ]
    known = [(plain, balanced) for plain, balanced in pairs if plain or balanced]
    return bool(known) and all(plain and balanced and plain.value == balanced.value for plain, balanced in known)


def _assemble(results: Results, columns: Iterable[tuple[Column, Mapping[Variant, Cell]]]) -> Table:
    """Return a table of the models that have a cell, in the usual order."""
    heads, cells = zip(*columns) if (columns := list(columns)) else ((), ())
    lines = (
        Line(results.title(variant), "", status_of(results, variant), tuple(c.get(variant, Cell()) for c in cells))
        for variant in results.methods()
        if any(variant in column for column in cells)
    )
    return Table(tuple(heads), tuple(lines))


def _detail(results: Results, variant: Variant) -> str:
    scores, kind = results.chosen(variant), status_of(results, variant)
    if kind == "failed":
        return "failed: diverged" if scores else "rejected: no admissible strength"
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


def cell_of(row: Row | None, interval: Interval | None = None) -> Cell:
    """Return a score with its interval, or with that of none or all, or with its standard error."""
    if row is None:
        return Cell()
    if not math.isfinite(row.value):
        return Cell("NaN", note="not finite")
    interval = interval or interval_at_end(row)
    written = write_range(*interval) if interval else ""
    return Cell(write_value(row.metric, row.value), write_stderr(row.metric, row.stderr), written, number=row.value)


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
    cells = tuple(
        Cell(write_value(name, known[name]), number=known[name]) if name in known else Cell() for name in metrics
    )
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

_COMPARED = {  # metric -> head, part
    "accuracy_clean": (_WITHOUT, "accuracy"),
    "balanced_accuracy_clean": (_WITHOUT, "balanced accuracy"),
    "accuracy_biased": (_WITH, "accuracy"),
    "balanced_accuracy_biased": (_WITH, "balanced accuracy"),
    "flip_rate": ("Flips", "rate"),
}


def pair_table(results: Results, shown: Variant | None) -> Table | None:
    """Return one model minus each other one on the same images; None where nothing was compared."""
    if shown is None:
        return None
    title, columns = results.title(shown), []
    for metric, (head, part) in _COMPARED.items():
        if metric.startswith("balanced") and _is_repeated(results, metric.removeprefix("balanced_")):
            continue
        rivals = (variant for variant in results.methods() if variant != shown)
        found = {rival: one for rival in rivals if (one := results.difference(shown, rival, metric))}
        if not found:
            continue
        n = count_images(results, metric)
        cells = {
            rival: Cell(write_points(one.value), interval=write_point_range(one.low, one.high), number=one.value)
            for rival, one in found.items()
        }
        columns.append((Column(metric, head, part, "points", "", f"{title} minus the model of the line", n), cells))
        if not metric.startswith("balanced"):  # a mean over classes is no share of images
            about = "Exact, two-sided, corrected for the lines (Holm): the chance of such a difference between equals"
            cells = {rival: Cell(write_p(p), number=p) for rival, p in corrected_p_values(found).items()}
            columns.append((Column(metric, head, "McNemar p", "", "", about, n), cells))
    caption = f"{title} minus each other model; points with {CONFIDENCE} intervals"
    return replace(_assemble(results, columns), caption=caption) if columns else None


def corrected_p_values(found: Mapping[_Key, Difference]) -> dict[_Key, float]:
    """Return Holm-adjusted p-values: of many rivals or classes, one differs by chance more easily."""
    known = {key: one.p for key, one in found.items() if one.p is not None}
    return dict(zip(known, holm(list(known.values()))))


_MOST_CLASSES = 30  # lines of a table; of more, those that changed most
_OF_CLASSES = {"sensitivity": "Sensitivity", "specificity": "Specificity", "auroc_class": "AUROC"}


def class_tables(results: Results, shown: Variant | None) -> list[Table]:
    """Return a table of the images without the artifact and one of those with it; none where no class was scored."""
    if results.original is None or shown is None:
        return []
    tables = [_class_table(results, shown, *each) for each in (("clean", "without"), ("biased", "with"))]
    return [table for table in tables if table.lines]


def _class_table(results: Results, shown: Variant, condition: str, images: str) -> Table:
    # of two classes, the specificity of one is the sensitivity of the other, and both have one AUROC
    heads = {"sensitivity": "Sensitivity"} if results.is_binary else _OF_CLASSES
    names = [f"{name}_{condition}" for name in heads]
    found = {name: (results.of_classes(results.original, name), results.of_classes(shown, name)) for name in names}
    known = {label for both in found.values() for rows in both for label in rows}
    known |= {label for name in names for label in results.unknown_classes(name)}
    before, after = found[names[0]]

    def change_of(label: int) -> float:
        """Return how much a class's sensitivity changed; one that only one model has comes first."""
        if label in before and label in after:
            return abs(after[label].value - before[label].value)
        return 1.0 if label in before or label in after else -1.0

    labels = sorted(sorted(known, key=lambda label: -change_of(label))[:_MOST_CLASSES])
    columns = [Column("n", "Images")]
    for name, head in zip(names, heads.values()):
        columns += [Column(name, head, part, unit_of(name)) for part in ("original", results.title(shown), "change")]
    lines = []
    for label in labels:
        few = results.why_unknown(names[0], label)
        n = before[label].n if label in before else few.n if few else None
        cells = [Cell(MISSING if n is None else f"{n:,}", number=n)]
        for name in names:
            cells += _change(results, name, label, *(rows.get(label) for rows in found[name]))
        lines.append(Line(results.class_title(label), "", "method", tuple(cells)))
    caption = (
        f"Test images {images} the artifact; percent ± one standard error, or at 0 and 100 the {CONFIDENCE} interval"
    )
    return Table(tuple(columns), tuple(lines), caption, left_out=len(known) - len(labels))


def _change(results: Results, metric: str, label: int, old: Row | None, new: Row | None) -> tuple[Cell, Cell, Cell]:
    unknown = results.why_unknown(metric, label)
    if old is None and new is None and unknown is not None:
        return Cell(str(unknown), note=unknown.reason, is_unknown=True), Cell(), Cell()
    change = new.value - old.value if old and new else None
    return cell_of(old), cell_of(new), Cell(MISSING if change is None else write_points(change), number=change)


_WITHOUT_ANY = {CLEAN: "accuracy"}
_WITH_ANOTHER = {FLIPS: "flip rate", BIASED: "accuracy"}


def side_effect_table(results: Results) -> Table | None:
    """Return models against inserted artifacts, the run's own first; None where no other one was inserted."""
    further: dict[str, dict[Variant, dict[str, Row]]] = {}
    for row in results.further:
        further.setdefault(str(row.artifact), {}).setdefault(Variant.of(row), {})[row.metric] = row
    variants = [variant for variant in results.methods() if any(variant in scores for scores in further.values())]
    if not variants:
        return None
    own = {variant: results.chosen(variant) for variant in variants}
    blocks = {"No artifact": own}
    if results.is_inserted:
        blocks[f"{results.meta.get('artifact') or 'artifact'} (of this run)"] = own
    blocks |= {mark_artifact(results, artifact): scores for artifact, scores in further.items()}
    columns = []
    for place, (head, scores) in enumerate(blocks.items()):
        for name, part in _WITH_ANOTHER.items() if place else _WITHOUT_ANY.items():
            metric, n = Metric.named(name), next((str(of[name].n) for of in scores.values() if name in of), MISSING)
            column = Column(name, head, part, unit_of(name), f"{100 * metric.ideal:g}", metric.description, n)
            columns.append((column, {variant: cell_of(scores.get(variant, {}).get(name)) for variant in variants}))
    table = _assemble(results, columns)
    at_ends = f", or at 0 and 100 the {CONFIDENCE} interval" if table.an_interval else ""
    caption = f"Test images; flip rate and accuracy, balanced over classes, in percent ± one standard error{at_ends}"
    return replace(table, caption=caption)


def mark_artifact(results: Results, artifact: str) -> str:
    """Return the name of an inserted artifact, with what the corrections do about it."""
    if artifact in (results.meta.get("removed") or ()):
        return f"{artifact} (removed too)"
    return f"{artifact} (kept)" if artifact in (results.meta.get("protected") or ()) else artifact
