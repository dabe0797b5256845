"""The one table of results: tidy, one score per row, the same bytes for the same run."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from hansfree._internal.files import read_arrays, suggest_path, write_text
from hansfree._internal.statistics import Interval
from hansfree.cavs import CAVQuality
from hansfree.cavs.diagnostics import Diagnosis
from hansfree.corrections import BalancedRule, Correction, RRClArC, split_name
from hansfree.errors import RunError
from hansfree.metrics import BalancedAccuracyBiased, Difference, Metric, NotAvailable, Score
from hansfree.reasons import Verdict

ORIGINAL = "original"
"""Name of the original model in results."""
CLEAN_TRAINED = "clean-trained"
"""What results call the reference that never saw the artifact, where there is one."""


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
    artifact: str | None = None  # "without" or "with" the run's own; the name of another that was inserted
    group: int | None = None  # class index
    metric: str
    value: float
    stderr: float | None = None
    n: int | None = None

    @property
    def spread(self) -> float:
        """The standard error, 0 where there is none."""
        return self.stderr if self.stderr is not None and math.isfinite(self.stderr) else 0.0

    @property
    def is_of_other_artifact(self) -> bool:
        """Whether it is of test images with another artifact than the run's own inserted."""
        return self.artifact not in (None, "without", "with")


COLUMNS = tuple(field.name for field in fields(Row))
_TYPES = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(Row).items()}
_MAY_BE_EMPTY = {field.name for field in fields(Row) if field.default is None}


def rows_of(scores: Iterable[Score], **about: Any) -> list[Row]:
    """Return scores as rows of one method; ``about`` fills the other columns."""
    return [Row(**asdict(score) | about) for score in scores]


def row_of_quality(metric: str, quality: CAVQuality, **about: Any) -> Row:
    """Return a CAV's quality as a row."""
    return Row(metric=metric, value=quality.value, stderr=quality.standard_error, n=quality.n, **about)


def write_table(path: Path, rows: Iterable[Row], *, unknown: Iterable[NotAvailable] = ()) -> None:
    """Write ``results.csv`` with six significant digits.

    Unavailable scores stand at the end, without a method and a value; ``n`` is the number of images.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    lines = [asdict(row) for row in rows]
    lines += [{"split": "test", "group": each.group, "metric": each.metric, "n": each.n} for each in unknown]
    writer.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[Row]:
    """Read the scores of ``results.csv`` as `write_table` writes it; an empty cell is None."""
    try:
        text = path.read_text(encoding="utf-8")
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        lines = [(reader.line_num, line) for line in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path} is damaged ({error}). Run it again.") from error
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise RunError(f"{path} lacks the column(s) {', '.join(missing)}; needed are {', '.join(COLUMNS)}.")
    return [
        Row(**{name: _parsed(f"{path}, line {number}", name, line[name]) for name in COLUMNS})
        for number, line in lines
        if line["method"] or line["value"]  # else an unavailable score
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


@dataclass(frozen=True)
class HeatmapSet:
    """The same images under several methods."""

    images: np.ndarray  # uint8 (m, height, width, 3), with the artifact
    masks: np.ndarray  # bool (m, height, width)
    relevance: dict[str, np.ndarray]  # method -> (m, height, width)
    direction: np.ndarray | None = None  # (m, height, width): for the score along the CAV, in the original model
    labels: np.ndarray | None = None  # the true class of each
    ids: np.ndarray | None = None  # which image of the source each is


def _read_heatmaps(path: Path) -> HeatmapSet:
    stored = read_arrays(path)
    prefix = "relevance/"
    return HeatmapSet(
        stored["images"],
        stored["masks"].astype(bool),
        {key.removeprefix(prefix): values for key, values in stored.items() if key.startswith(prefix)},
        stored["direction"],
        stored.get("labels"),
        stored.get("ids"),
    )


FIRST = RRClArC.name  # the method that the report is about
REFERENCES = (ORIGINAL, CLEAN_TRAINED)  # stand in the table, and do not compete


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
            f"seed {getattr(self, name)}" if name == "seed" else getattr(self, name)
            for name in ("experiment", "cav", "target", "norm", "seed")
            if len({getattr(rival, name) for rival in rivals}) > 1 and getattr(self, name) is not None
        ]
        return " · ".join([method_title(self.method), *options])


@dataclass(frozen=True)
class Results:
    """Everything that the report shows."""

    rows: tuple[Row, ...]  # of final models on the test images
    meta: dict[str, Any]
    selection: dict[str, dict[str, Any]]
    heatmaps: HeatmapSet | None
    paired: tuple[Difference, ...] = ()  # between methods on the same images, each pair of methods once
    paired_classes: tuple[Difference, ...] = ()  # each method minus the original model, class by class
    intervals: dict[str, dict[str, Interval]] = field(default_factory=dict)  # method -> metric -> 95 %
    validated: tuple[Row, ...] = ()  # what was seen of the chosen models on validation images, after every epoch
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by method
    unknown: tuple[NotAvailable, ...] = ()  # scores that too few test images leave unknown, whatever the method
    diagnosis: Diagnosis | None = None  # whether the direction can be trusted
    further: tuple[Row, ...] = ()  # scores of the chosen models on test images with another artifact inserted

    @cached_property
    def _by_variant(self) -> dict[Variant, list[Row]]:
        """All rows by what they belong to: a page asks hundreds of times."""
        found: dict[Variant, list[Row]] = {}
        for row in self.rows:
            found.setdefault(Variant.of(row), []).append(row)
        return found

    def methods(self) -> list[Variant]:
        """Return every variant that is a model (not a CAV), in the paper's order, new ones before the reference."""
        order = [ORIGINAL, *Correction.members()]

        def place(variant: Variant) -> tuple[bool, int, bool]:
            method, further = split_name(variant.method)
            place = order.index(method) if method in order else len(order)
            return method == CLEAN_TRAINED, place, further is not None

        return sorted((each for each in self._by_variant if not each.method.startswith("cav:")), key=place)

    @property
    def is_inserted(self) -> bool:
        """Whether the images with the artifact are the clean ones, so that answers can flip; else they are others."""
        return not self.rows or any(row.metric == "flip_rate" for row in self.rows)

    @property
    def is_one_sided(self) -> bool:
        """Whether images with the artifact are known of one class at most: right answers may be the shortcut's."""
        return self.why_unknown("balanced_accuracy_biased") is not None

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes: what is measured of one is then known of the other."""
        return len(self.meta.get("class_names") or ()) == 2

    @property
    def budget(self) -> float:
        """What a correction may lose in balanced accuracy on clean images."""
        return float(self.meta.get("budget", BalancedRule.budget))

    @property
    def class_budgets(self) -> dict[int, float]:
        """What single classes may lose; JSON has only strings as keys."""
        return {int(label): float(most) for label, most in self.meta.get("class_budgets", {}).items()}

    def class_title(self, label: int) -> str:
        """Return a class's name, or its number where that is all we know."""
        names = self.meta.get("class_names") or ()
        return str(names[label]) if label < len(names) else f"class {label}"

    def why_unknown(self, metric: str, label: int | None = None) -> NotAvailable | None:
        """Return why a score over all images, or of a class, is not given, if there are too few images for it."""
        return next((each for each in self.unknown if (each.metric, each.group) == (metric, label)), None)

    def unknown_classes(self, metric: str) -> set[int]:
        """Return the classes that have too few images for a score of their own."""
        return {each.group for each in self.unknown if each.metric == metric and each.group is not None}

    def of_classes(self, variant: Variant | None, metric: str) -> dict[int, Row]:
        """Return the scores of each class at the chosen strength."""
        rows = self._by_variant.get(variant, ()) if variant else ()
        return {row.group: row for row in rows if row.metric == metric and row.chosen and row.group is not None}

    def of_metric(self, metric: str) -> list[Row]:
        """Return the rows of one metric over all images."""
        return [row for row in self.rows if row.metric == metric and row.group is None]

    def chosen(self, variant: Variant | None) -> dict[str, Row]:
        """Return the scores of the chosen strength by metric; a score of all images goes before one of a group."""
        of_classes = {name for name, metric in Metric.members().items() if metric.is_per_class}
        rows = self._by_variant.get(variant, ()) if variant else ()
        found = [row for row in rows if row.chosen and row.metric not in of_classes]
        return {row.metric: row for row in sorted(found, key=lambda row: row.group is None)}

    def pair(self, before: Variant | None, after: Variant | None, metric: str) -> tuple[Row, Row] | None:
        """Return a score of two models, where both are finite."""
        old, new = (self.chosen(each).get(metric) for each in (before, after))
        return (old, new) if old and new and math.isfinite(old.value) and math.isfinite(new.value) else None

    def diverged(self) -> list[tuple[str, float | None]]:
        """Return the methods and strengths (None: it has none) that ended in numbers that are not finite, in order."""
        return [(method, s) for method, choice in self.selection.items() for s in choice.get("diverged") or ()]

    def has_diverged(self, row: Row) -> bool:
        """Return whether a score is of a model that diverged; its answers are counted as wrong, not as missing."""
        # results.csv has six digits of a strength, results.json all of them
        listed = [None if s is None else float(f"{s:.6g}") for method, s in self.diverged() if method == row.method]
        return row.strength in listed or not math.isfinite(row.value)

    def difference(self, ours: Variant, theirs: Variant | None, metric: str) -> Difference | None:
        """Return by how much two models differ in a score on the same images; None if that is unknown."""
        if theirs is None or not (self.is_first(ours) and self.is_first(theirs)):
            return None
        wanted = ours.method, theirs.method, metric
        both = (side for each in self.paired for side in (each, each.reversed))
        return next((side for side in both if (side.method, side.rival, side.metric) == wanted), None)

    def class_difference(self, variant: Variant, label: int) -> Difference | None:
        """Return how a model's sensitivity to a class differs from the original's; None if that is unknown."""
        wanted = (variant.method, label) if self.is_first(variant) else None
        return next((each for each in self.paired_classes if (each.method, each.group) == wanted), None)

    def interval(self, variant: Variant, metric: str) -> Interval | None:
        """Return the 95 % interval of a score; None if that is unknown."""
        return self.intervals.get(variant.method, {}).get(metric) if self.is_first(variant) else None

    def validation_score(self, variant: Variant) -> float | None:
        """Return what the selection rule saw of a model in the end, the more the better; None if that is unknown."""
        derivative = self.selection.get(variant.method, {}).get("derivative")
        if derivative is None:
            row = self.validation_row(variant, BalancedAccuracyBiased.name)
            return row.value if row else None
        if derivative["chosen"] is None or takes_out_direction(variant.method):
            return None
        return -float(derivative["chosen"])

    def validation_row(self, variant: Variant, metric: str) -> Row | None:
        """Return a score of the final model on the validation images."""
        rows = (row for row in self.validated if row.metric == metric and Variant.of(row) == variant)
        return max(rows, key=lambda row: row.epoch or 0, default=None)

    def is_first(self, variant: Variant) -> bool:
        """Return whether a variant is of the run's own seed: of repeats, answers per image are not stored."""
        return variant.seed is None or variant.seed == self.meta.get("seed", variant.seed)

    def variant(self, method: str) -> Variant | None:
        """Return the first variant of a method."""
        return next((variant for variant in self.methods() if variant.method == method), None)

    @property
    def original(self) -> Variant | None:
        """The original model."""
        return self.variant(ORIGINAL)

    def title(self, variant: Variant) -> str:
        """Return a variant's title among all of the run."""
        return variant.title(self.methods())


def takes_out_direction(method: str) -> bool:
    """Return whether a corrected model takes the direction out of its activations for good, as P-ClArC does.

    What its head would do along the direction then says nothing about the model: derivatives cannot compare it.
    """
    member = Correction.members().get(split_name(method)[0])
    return member is not None and member.info.removes_direction


def method_title(method: str) -> str:
    """Return a method's name as the paper spells it, with the further CAV that it goes along."""
    if method in REFERENCES:
        return method.capitalize()
    name, cav = split_name(method)
    member = Correction.members().get(name)
    return (member.info.title if member else name) + (f" along {cav}" if cav else "")


def tested_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the scores of final models on the test images."""
    return tuple(row for row in rows if row.split == "test" and row.epoch is None and not row.is_of_other_artifact)


def validated_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the scores of the chosen models on the validation images."""
    return tuple(row for row in rows if row.split == "val" and row.chosen)


def load_results(run: Path) -> Results:
    """Read results.csv, results.json and, if present, heatmaps.npz and diagnostics.json of a run folder."""
    if run.is_file():
        raise RunError(f"{run} is a file, and a run's folder is wanted: for a run file, what it gives as 'out'.")
    if not run.is_dir():
        raise RunError(f"There is no run folder {run}.{suggest_path(run)}")
    table, summary = run / "results.csv", run / "results.json"
    for path in (table, summary):
        if not path.is_file():
            raise RunError(
                f"{run} is not a finished run: it has no {path.name}. Let the run end first: it writes it last."
            )
    rows = read_rows(table)
    try:
        content = json.loads(summary.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise RunError(f"{summary} is not valid JSON: {error}.") from error
    heatmaps, diagnosis = run / "heatmaps.npz", run / "diagnostics.json"
    try:
        return Results(
            rows=tested_rows(rows),
            meta=content.get("meta", {}),
            selection=content.get("selection", {}),
            heatmaps=_read_heatmaps(heatmaps) if heatmaps.is_file() else None,
            paired=tuple(Difference(**each) for each in content.get("paired", ())),
            paired_classes=tuple(Difference(**each) for each in content.get("paired_classes", ())),
            intervals={
                method: {metric: (low, high) for metric, (low, high) in found.items()}
                for method, found in content.get("intervals", {}).items()
            },
            validated=validated_rows(rows),
            verdicts={method: Verdict.from_json(each) for method, each in content.get("verdicts", {}).items()},
            unknown=tuple(NotAvailable(**each) for each in content.get("unknown", ())),
            diagnosis=Diagnosis.from_json(diagnosis.read_text(encoding="utf-8")) if diagnosis.is_file() else None,
            further=tuple(row for row in rows if row.is_of_other_artifact),
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise RunError(
            f"{run} was written by another version of hansfree, or is damaged ({error}). Run it again."
        ) from error
