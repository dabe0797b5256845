"""What a run folder says: the tidy scores, the settings around them, and the heatmaps where there are any."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hansfree.corrections import Correction, RRClArC, split_name
from hansfree.doctor import Diagnosis
from hansfree.metrics import BalancedAccuracyBiased, Difference, Interval, Metric, Unknown, class_group
from hansfree.report.heatmap_set import HeatmapSet
from hansfree.report.ruling import Judgement
from hansfree.results import CLEAN_TRAINED, ORIGINAL, Row

FIRST = RRClArC.name  # the method that the report is about
REFERENCES = (ORIGINAL, CLEAN_TRAINED)  # stand in the table, and do not compete
_MOST_SKIPPED = 10  # files named one by one
_CLASS = re.compile(r"\bclass (\d+)\b")  # what results call a class: `hansfree.metrics.class_group`


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
class Results:
    """All that the report is made of."""

    rows: tuple[Row, ...]  # of final models on the test images
    meta: dict[str, Any]
    selection: dict[str, dict[str, Any]]
    heatmaps: HeatmapSet | None
    paired: tuple[Difference, ...] = ()  # between methods on the same images, each pair of methods once
    paired_classes: tuple[Difference, ...] = ()  # each method minus the original model, class by class
    intervals: dict[str, dict[str, Interval]] = field(default_factory=dict)  # method -> metric -> 95 %
    validated: tuple[Row, ...] = ()  # what was seen of the chosen models on validation images, after every epoch
    rulings: dict[str, Judgement] = field(default_factory=dict)  # method -> what its model is called
    unknown: tuple[Unknown, ...] = ()  # scores that too few test images leave unknown, whatever the method
    doctor: Diagnosis | None = None  # whether the direction can be trusted
    further: tuple[Row, ...] = ()  # scores of the chosen models on test images with another artifact put in

    @cached_property
    def _by_variant(self) -> dict[Variant, list[Row]]:
        """All rows by what they belong to: a page asks hundreds of times."""
        found: dict[Variant, list[Row]] = {}
        for row in self.rows:
            found.setdefault(Variant.of(row), []).append(row)
        return found

    def methods(self) -> list[Variant]:
        """Return every variant that is a model (not a CAV), in the paper's order, new ones before the reference."""
        found = [variant for variant in self._by_variant if not variant.method.startswith("cav:")]
        order = [ORIGINAL, *Correction.members()]
        last = len(order) + 1
        places = {name: place for place, name in enumerate(order)} | {CLEAN_TRAINED: last}

        def place(variant: Variant) -> tuple[int, bool]:
            method, further = split_name(variant.method)
            return places.get(method, last - 1), further is not None

        return sorted(found, key=place)

    @property
    def is_inserted(self) -> bool:
        """Whether the images with the artifact are the clean ones, so that answers can flip; else they are others."""
        return not self.rows or any(row.metric == "flip_rate" for row in self.rows)

    @property
    def is_one_sided(self) -> bool:
        """Whether images with the artifact are known of one class at most: right answers may be the shortcut's."""
        return self.why_unknown("balanced_accuracy_biased") is not None

    def class_title(self, label: int) -> str:
        """Return a class's name, or its number where that is all we know."""
        names = self.meta.get("class_names") or ()
        return str(names[label]) if label < len(names) else f"class {label}"

    def with_class_names(self, text: str) -> str:
        """Return words of a result with a class's name where they have its number."""
        return _CLASS.sub(lambda found: self.class_title(int(found[1])), text)

    def why_unknown(self, metric: str, label: int | None = None) -> Unknown | None:
        """Return why a score over all images, or of a class, is not given, if there are too few images for it."""
        group = "" if label is None else class_group(label)
        return next((each for each in self.unknown if (each.metric, each.group) == (metric, group)), None)

    def unknown_classes(self, metric: str) -> set[int]:
        """Return the classes that have too few images for a score of their own."""
        groups = (_CLASS.fullmatch(each.group) for each in self.unknown if each.metric == metric)
        return {int(found[1]) for found in groups if found}

    def notes(self) -> list[str]:
        """Return what was noticed about the data: remarks, and files that were left out, of many the first."""
        skipped = list(self.meta.get("skipped") or ())
        notes = [*(self.meta.get("remarks") or ()), *(f"Left out: {told}" for told in skipped[:_MOST_SKIPPED])]
        if more := len(skipped[_MOST_SKIPPED:]):
            notes.append(f"Left out: {more:,} more, which results.json names.")
        return notes

    def of_classes(self, variant: Variant, metric: str) -> dict[int, Row]:
        """Return the scores of each class at the chosen strength."""
        return {
            int(found[1]): row
            for row in self._by_variant.get(variant, ())
            if row.metric == metric and row.chosen
            if (found := _CLASS.fullmatch(row.group or ""))
        }

    def of_metric(self, metric: str) -> list[Row]:
        """Return the rows of one metric over all images."""
        return [row for row in self.rows if row.metric == metric and not row.group]

    def chosen(self, variant: Variant) -> dict[str, Row]:
        """Return the scores of the chosen strength by metric; a score of all images goes before one of a group."""
        found = [row for row in self._by_variant.get(variant, ()) if row.chosen and not _is_of_class(row)]
        return {row.metric: row for row in sorted(found, key=lambda row: not row.group)}

    def diverged(self) -> list[tuple[str, float | None]]:
        """Return the methods and strengths (None: it has none) that ended in numbers that are not finite, in order."""
        return [(method, s) for method, choice in self.selection.items() for s in choice.get("diverged") or ()]

    def has_diverged(self, row: Row) -> bool:
        """Say whether a score is of a model that diverged; its answers are counted as wrong, not as missing."""
        # results.csv keeps six digits of a strength, results.json all of them
        listed = [None if s is None else float(f"{s:.6g}") for method, s in self.diverged() if method == row.method]
        return row.strength in listed or not math.isfinite(row.value)

    def difference(self, ours: Variant, theirs: Variant, metric: str) -> Difference | None:
        """Return by how much two models differ in a score on the same images; None if that is unknown."""
        if not (self.is_first(ours) and self.is_first(theirs)):
            return None
        wanted = ours.method, theirs.method, metric
        both = (side for each in self.paired for side in (each, each.turned))
        return next((side for side in both if (side.method, side.rival, side.metric) == wanted), None)

    def class_difference(self, variant: Variant, label: int) -> Difference | None:
        """Return how a model's sensitivity to a class differs from the original's; None if that is unknown."""
        wanted = (variant.method, class_group(label)) if self.is_first(variant) else None
        return next((each for each in self.paired_classes if (each.method, each.group) == wanted), None)

    def interval(self, variant: Variant, metric: str) -> Interval | None:
        """Return the 95 % interval of a score; None if that is unknown."""
        return self.intervals.get(variant.method, {}).get(metric) if self.is_first(variant) else None

    def validation_score(self, variant: Variant) -> float | None:
        """Return what the selection rule saw of a model in the end, the more the better; None if that is unknown."""
        told = self.selection.get(variant.method, {}).get("derivative")
        if told is None:
            return self.validated_value(variant, BalancedAccuracyBiased.name)
        return None if told["chosen"] is None or takes_out_direction(variant.method) else -float(told["chosen"])

    def validated_value(self, variant: Variant, metric: str) -> float | None:
        """Return a score on validation images after the last epoch; None if that is unknown."""
        seen = [row for row in self.validated if row.metric == metric and Variant.of(row) == variant]
        return max(seen, key=lambda row: row.epoch or 0).value if seen else None

    def is_first(self, variant: Variant) -> bool:
        """Tell whether a variant is of the run's own seed: of repeats, answers per image are not kept."""
        return variant.seed is None or variant.seed == self.meta.get("seed", variant.seed)

    def variant(self, method: str) -> Variant | None:
        """Return the first variant of a method."""
        return next((variant for variant in self.methods() if variant.method == method), None)


def takes_out_direction(method: str) -> bool:
    """Tell whether a corrected model takes the direction out of its activations for good, as P-ClArC does.

    What its head would do along the direction then says nothing about the model: derivatives cannot compare it.
    """
    member = _member(method)
    return member is not None and member.inference_edit is not Correction.inference_edit


def method_title(method: str) -> str:
    """Return a method's name as the paper spells it, with the further CAV that it goes along."""
    if method in REFERENCES:
        return method.capitalize()
    member, (name, cav) = _member(method), split_name(method)
    return (member.title if member else name) + (f" along {cav}" if cav else "")


def _member(method: str) -> type[Correction] | None:
    return Correction.members().get(split_name(method)[0])


def spread_of(row: Row) -> float:
    """Return a score's standard error, 0 where it has none."""
    return row.stderr if row.stderr is not None and math.isfinite(row.stderr) else 0.0


def _is_of_class(row: Row) -> bool:
    metric = Metric.members().get(row.metric)
    return metric is not None and metric.is_per_class
