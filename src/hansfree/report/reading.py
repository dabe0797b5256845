"""What a run folder says: the tidy scores, the settings around them, and the heatmaps where there are any."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hansfree.errors import RunError
from hansfree.results import Row, read_rows

ORIGINAL, FIRST = "original", "rr-clarc"  # the model as it came, and the method that the report is about
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
    cav: str | None = None
    target: str | None = None
    norm: str | None = None
    seed: int | None = None

    @classmethod
    def of(cls, row: Row) -> Variant:
        """Return what a score belongs to."""
        return cls(row.method, row.experiment, row.cav, row.target, row.norm, row.seed)

    def title(self, among: Iterable[Variant]) -> str:
        """Return the method's name as users know it, with the options in which ``among`` differ, and no others."""
        rivals = {variant for variant in among if variant.method == self.method} | {self}
        options = [
            f"seed {getattr(self, field)}" if field == "seed" else getattr(self, field)
            for field in ("experiment", "cav", "target", "norm", "seed")
            if len({getattr(rival, field) for rival in rivals}) > 1 and getattr(self, field) is not None
        ]
        return " · ".join([method_title(self.method), *options])


@dataclass(frozen=True)
class HeatmapSet:
    """The same images under several methods."""

    images: np.ndarray  # uint8 (m, height, width, 3), with the artifact
    masks: np.ndarray  # bool (m, height, width)
    relevance: dict[str, np.ndarray]  # method -> (m, height, width)


@dataclass(frozen=True)
class Results:
    """All that the report is made of."""

    rows: tuple[Row, ...]  # of final models on the test images
    meta: dict[str, Any]
    selection: dict[str, dict[str, Any]]
    heatmaps: HeatmapSet | None
    # method -> metric -> [RR-ClArC's score minus the method's on the same images, its standard error]
    paired: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def methods(self) -> list[Variant]:
        """Return every variant that is a model (not a CAV), in the paper's order, new ones before the reference."""
        found = dict.fromkeys(Variant.of(row) for row in self.rows if not row.method.startswith("cav:"))
        order = [*_TITLES]
        return sorted(found, key=lambda v: order.index(v.method) if v.method in order else len(order) - 1.5)

    def of_metric(self, metric: str) -> list[Row]:
        """Return the rows of one metric over all images."""
        return [row for row in self.rows if row.metric == metric and not row.group]

    def chosen(self, variant: Variant) -> dict[str, Row]:
        """Return the scores of the chosen strength by metric; a score of all images goes before one of a group."""
        found = [row for row in self.rows if row.chosen and Variant.of(row) == variant]
        return {row.metric: row for row in sorted(found, key=lambda row: not row.group)}

    def diverged(self) -> list[tuple[str, float | None]]:
        """Return the methods and strengths (None: it has none) that ended in numbers that are not finite, in order."""
        return [(method, s) for method, choice in self.selection.items() for s in choice.get("diverged") or ()]

    def has_diverged(self, row: Row) -> bool:
        """Say whether a score is of a model that diverged; its answers are counted as wrong, not as missing."""
        # results.csv keeps six digits of a strength, results.json all of them
        listed = [None if s is None else float(f"{s:.6g}") for method, s in self.diverged() if method == row.method]
        return row.strength in listed or not math.isfinite(row.value)

    def lead(self, better: Variant, other: Variant, metric: str) -> tuple[float, float] | None:
        """Return by how much RR-ClArC and a rival differ on the same images, and its error; None if that is unknown."""
        rival, sign = (other.method, 1) if better.method == FIRST else (better.method, -1)
        known = self.paired.get(rival, {}).get(metric)
        return (sign * known[0], known[1]) if known and FIRST in (better.method, other.method) else None

    def variant(self, method: str) -> Variant | None:
        """Return the first variant of a method."""
        return next((variant for variant in self.methods() if variant.method == method), None)


def method_title(method: str) -> str:
    """Return a method's name as the paper spells it."""
    return _TITLES.get(method, method)


def spread_of(row: Row) -> float:
    """Return a score's standard error, 0 where it has none."""
    return row.stderr if row.stderr is not None and math.isfinite(row.stderr) else 0.0


def load_results(run: Path) -> Results:
    """Read results.csv, results.json and, where it is there, heatmaps.npz of a run folder."""
    table, summary = run / "results.csv", run / "results.json"
    for path in (table, summary):
        if not path.is_file():
            raise RunError(f"{run} is not a finished run: it has no {path.name}. `hansfree demo` writes it.")
    rows = tuple(row for row in read_rows(table) if row.split == "test" and row.epoch is None)
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
        paired=content.get("paired", {}),
    )


def _heatmaps(path: Path) -> HeatmapSet:
    prefix = "relevance/"
    with np.load(path, allow_pickle=False) as stored:
        relevance = {key[len(prefix) :]: stored[key] for key in stored.files if key.startswith(prefix)}
        return HeatmapSet(images=stored["images"], masks=stored["masks"].astype(bool), relevance=relevance)
