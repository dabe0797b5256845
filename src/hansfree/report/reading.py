"""What a run folder says: the tidy scores, the settings around them, and the heatmaps where there are any."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hansfree.errors import RunError
from hansfree.results import COLUMNS

ORIGINAL = "original"
REFERENCES = (ORIGINAL, "clean-trained")  # stand in the table, and do not compete
_TITLES = {
    "original": "Original",
    "vanilla": "Vanilla",
    "rrr": "RRR",
    "p-clarc": "P-ClArC",
    "a-clarc": "A-ClArC",
    "rr-clarc": "RR-ClArC",
    "clean-trained": "Clean-trained",
}


@dataclass(frozen=True)
class Variant:
    """One way to make a model: a method with all that may differ between two results of the same method."""

    method: str
    experiment: str = ""
    cav: str = ""
    target: str = ""
    norm: str = ""
    seed: str = ""

    def title(self, among: Iterable[Variant]) -> str:
        """Return the method's name as users know it, with the options in which ``among`` differ, and no others."""
        rivals = {variant for variant in among if variant.method == self.method} | {self}
        options = [
            f"seed {getattr(self, field)}" if field == "seed" else getattr(self, field)
            for field in ("experiment", "cav", "target", "norm", "seed")
            if len({getattr(rival, field) for rival in rivals}) > 1 and getattr(self, field)
        ]
        return " · ".join([method_title(self.method), *options])


@dataclass(frozen=True)
class Row:
    """One score: a line of results.csv."""

    variant: Variant
    strength: float | None
    is_chosen: bool
    epoch: str
    split: str
    group: str
    metric: str
    value: float
    stderr: float
    n: int | None


@dataclass(frozen=True)
class HeatmapSet:
    """The same images under several methods."""

    images: np.ndarray  # uint8 (m, height, width, 3), with the artifact
    masks: np.ndarray  # bool (m, height, width)
    relevance: dict[str, np.ndarray]  # method -> (m, height, width)


@dataclass(frozen=True)
class Results:
    """All that the report is made of."""

    rows: tuple[Row, ...]  # of final models
    meta: dict[str, Any]
    selection: dict[str, dict[str, Any]]
    heatmaps: HeatmapSet | None

    def methods(self) -> list[Variant]:
        """Return every variant that is a model (not a CAV), in the paper's order, new ones before the reference."""
        found = dict.fromkeys(row.variant for row in self.rows if not row.variant.method.startswith("cav:"))
        order = [*_TITLES]
        return sorted(found, key=lambda v: order.index(v.method) if v.method in order else len(order) - 1.5)

    def of_metric(self, metric: str, *, split: str) -> list[Row]:
        """Return the rows of one metric over all images of a split."""
        return [row for row in self.rows if row.metric == metric and row.split == split and not row.group]

    def chosen(self, variant: Variant, *, split: str = "test") -> dict[str, Row]:
        """Return the scores of the chosen strength by metric; a score of all images goes before one of a group."""
        found = [r for r in self.rows if r.variant == variant and r.split == split and r.is_chosen]
        return {row.metric: row for row in sorted(found, key=lambda row: not row.group)}

    def diverged(self) -> dict[tuple[str, float], None]:
        """Return the methods and strengths that ended in numbers that are not finite, in order."""
        return {(method, s): None for method, choice in self.selection.items() for s in choice.get("diverged") or ()}

    def has_diverged(self, row: Row) -> bool:
        """Say whether a score is of a model that diverged; its answers are counted as wrong, not as missing."""
        return (row.variant.method, row.strength) in self.diverged() or not math.isfinite(row.value)

    def variant(self, method: str) -> Variant | None:
        """Return the first variant of a method."""
        return next((variant for variant in self.methods() if variant.method == method), None)


def fullest_split(rows: list[Row]) -> list[Row]:
    """Keep the split that scores most models: every strength is scored on val, on test often the chosen only."""
    counts = {split: sum(row.split == split for row in rows) for split in ("test", "val")}
    split = max(counts, key=lambda name: counts[name])
    return [row for row in rows if row.split == split]


def method_title(method: str) -> str:
    """Return a method's name as the paper spells it."""
    return _TITLES.get(method, method)


def load_results(run: Path) -> Results:
    """Read results.csv, results.json and, where it is there, heatmaps.npz of a run folder."""
    table, summary = run / "results.csv", run / "results.json"
    for path in (table, summary):
        if not path.is_file():
            raise RunError(f"{run} is not a finished run: it has no {path.name}. `hansfree demo` writes it.")
    with table.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise RunError(f"{table} lacks the column(s) {', '.join(missing)}; needed are {', '.join(COLUMNS)}.")
        rows = tuple(_row(line) for line in reader if not line["epoch"])
    try:
        content = json.loads(summary.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunError(f"{summary} is not valid JSON: {error}.") from error
    heatmaps = run / "heatmaps.npz"
    return Results(
        rows=rows,
        meta=content.get("meta", {}),
        selection=content.get("selection", {}),
        heatmaps=_heatmaps(heatmaps) if heatmaps.is_file() else None,
    )


def _row(line: dict[str, str]) -> Row:
    return Row(
        variant=Variant(line["method"], line["experiment"], line["cav"], line["target"], line["norm"], line["seed"]),
        strength=float(line["strength"]) if line["strength"] else None,
        is_chosen=line["chosen"] in ("1", "True", "true"),
        epoch=line["epoch"],
        split=line["split"],
        group=line["group"],
        metric=line["metric"],
        value=_number(line["value"]),
        stderr=_number(line["stderr"]),
        n=int(float(line["n"])) if line["n"] else None,
    )


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _heatmaps(path: Path) -> HeatmapSet:
    prefix = "relevance/"
    with np.load(path, allow_pickle=False) as stored:
        relevance = {key[len(prefix) :]: stored[key] for key in stored.files if key.startswith(prefix)}
        return HeatmapSet(images=stored["images"], masks=stored["masks"].astype(bool), relevance=relevance)
