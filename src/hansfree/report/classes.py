"""Medicine's numbers: sensitivity, specificity and AUROC of every class, before and after the correction."""

from __future__ import annotations

from dataclasses import dataclass

from hansfree.metrics import Condition
from hansfree.report.numbers import CONFIDENCE, MISSING, write_points
from hansfree.report.reading import Results, Variant
from hansfree.report.tables import Cell, cell_of
from hansfree.results import ORIGINAL, Row

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
        table = _table(results, shown, condition, found)
        if table.lines:
            tables.append(table)
    return tables


def _table(
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
