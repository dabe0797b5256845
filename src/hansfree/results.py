"""The one table of results: tidy, one score per row, the same bytes for the same run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hansfree.cavs import CAVQuality
from hansfree.files import write_text
from hansfree.metrics import Score


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


def rows_of(scores: Iterable[Score], **about: Any) -> list[Row]:
    """Turn scores into rows of one method; ``about`` fills the other columns."""
    return [Row(metric=s.metric, value=s.value, stderr=s.stderr, n=s.n, group=s.group or None, **about) for s in scores]


def row_of_quality(metric: str, quality: CAVQuality, **about: Any) -> Row:
    """Turn a CAV's quality into a row."""
    return Row(metric=metric, value=quality.value, stderr=quality.standard_error, n=quality.n, **about)


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write ``results.csv``; numbers keep six significant digits, so that the last bits of a sum do not show."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(value) for value in asdict(row).values()])
    write_text(path, text.getvalue())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
