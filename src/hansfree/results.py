"""The one table of results: tidy, one score per row, the same bytes for the same run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hansfree._internal.files import write_text
from hansfree.cavs import CAVQuality
from hansfree.errors import RunError
from hansfree.metrics import Score, Unknown

ORIGINAL = "original"
"""What results call the model as it came."""
CLEAN_TRAINED = "clean-trained"
"""What results call the reference that never saw the artifact, where there is one."""
_WITH = "test with "  # begins the split of test images that a further artifact was put into


@dataclass(frozen=True, kw_only=True)
class Row:
    """One score of one method; None where a column does not apply."""

    experiment: str
    method: str
    cav: str | None = None
    target: str | None = None
    norm: str | None = None
    strength: float | None = None
    chosen: int | None = None
    seed: int | None = None
    epoch: int | None = None
    split: str | None = None
    group: str | None = None
    metric: str
    value: float
    stderr: float | None = None
    n: int | None = None


COLUMNS = tuple(field.name for field in fields(Row))
_TYPES = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(Row).items()}
_MAY_BE_EMPTY = {field.name for field in fields(Row) if field.default is None}


def rows_of(scores: Iterable[Score], **about: Any) -> list[Row]:
    """Turn scores into rows of one method; ``about`` fills the other columns."""
    return [Row(metric=s.metric, value=s.value, stderr=s.stderr, n=s.n, group=s.group or None, **about) for s in scores]


def row_of_quality(metric: str, quality: CAVQuality, **about: Any) -> Row:
    """Turn a CAV's quality into a row."""
    return Row(metric=metric, value=quality.value, stderr=quality.standard_error, n=quality.n, **about)


def split_with(artifact: str) -> str:
    """Return what results call the clean test images after a further artifact was put in."""
    return f"{_WITH}{artifact}"


def further_artifact(row: Row) -> str:
    """Return which further artifact was put into the test images that a score is of; empty where none was."""
    return row.split.removeprefix(_WITH) if row.split and row.split.startswith(_WITH) else ""


def write_table(path: Path, rows: Iterable[Row], *, unknown: Iterable[Unknown] = ()) -> None:
    """Write ``results.csv``; numbers keep six significant digits, so that the last bits of a sum do not show.

    What too few test images leave unknown stands at the end: a line without a value that holds for every method, so
    without a method too; ``n`` says how many images there are.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(value) for value in asdict(row).values()])
    for each in unknown:
        known = {"split": "test", "group": each.group, "metric": each.metric, "n": each.n}
        writer.writerow([_cell(known.get(name)) for name in COLUMNS])
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[Row]:
    """Read the scores of ``results.csv`` as `write_table` writes it; an empty cell is None."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, restval="")
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise RunError(f"{path} lacks the column(s) {', '.join(missing)}; needed are {', '.join(COLUMNS)}.")
        return [
            Row(**{name: _parsed(f"{path}, line {reader.line_num}", name, line[name]) for name in COLUMNS})
            for line in reader
            if line["method"] or line["value"]  # else what is unknown, which is no score
        ]


def _parsed(place: str, name: str, text: str) -> Any:
    if not text and name in _MAY_BE_EMPTY:
        return None
    try:
        return _TYPES[name](text)
    except ValueError:
        raise RunError(f"{place}: {name} is {text!r}, not of type {_TYPES[name].__name__}.") from None


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
