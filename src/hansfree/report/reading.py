"""Results of a run as a report reads them, and the rules of the verdict."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hansfree._internal.files import neighbour, read_arrays
from hansfree.cavs.diagnostics import Diagnosis
from hansfree.corrections import Correction, RRClArC, split_name
from hansfree.errors import RunError
from hansfree.metrics import LEVEL, BalancedAccuracyBiased, Difference, Interval, Metric, Unknown, class_group
from hansfree.report.numbers import CONFIDENCE, percent, write_points
from hansfree.results import CLEAN_TRAINED, ORIGINAL, Row, further_artifact, read_rows
from hansfree.selection import BalancedRule

_PREFIX = "relevance/"


@dataclass(frozen=True)
class HeatmapSet:
    """The same images under several methods."""

    images: np.ndarray  # uint8 (m, height, width, 3), with the artifact
    masks: np.ndarray  # bool (m, height, width)
    relevance: dict[str, np.ndarray]  # method -> (m, height, width)
    direction: np.ndarray | None = None  # (m, height, width): for the score along the CAV, in the model as it came
    labels: np.ndarray | None = None  # the true class of each
    ids: np.ndarray | None = None  # which image of the source each is


def read_heatmaps(path: Path) -> HeatmapSet:
    """Read ``heatmaps.npz``; an older one does not say which images it holds."""
    stored = read_arrays(path)
    return HeatmapSet(
        stored["images"],
        stored["masks"].astype(bool),
        {key[len(_PREFIX) :]: values for key, values in stored.items() if key.startswith(_PREFIX)},
        stored["direction"],
        stored.get("labels"),
        stored.get("ids"),
    )


Ruling = Literal[
    "as a clean-trained model", "corrected", "partly corrected", "not corrected", "do not use", "cannot be known"
]

MARGIN = 0.05  # flips that a model may have beyond those of a clean-trained one, and still be called like it


@dataclass(frozen=True)
class Judgement:
    """What a model is called, the rule by which it is called so, and what stood in the way of a better word."""

    ruling: Ruling
    rule: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a model wins over another on the same test images, as intervals of its score minus the other's.

    None where it cannot be known.
    """

    flips: Interval | None = None
    flips_p: float | None = None  # McNemar's, of that difference
    accuracy: Interval | None = None  # balanced, with the artifact


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the rule looks at; None where it cannot be known."""

    is_usable: bool = True  # nothing speaks against the model: it did not fail or collapse, nor overspend the budget
    flips: tuple[float, float] | None = None  # flip rate before and after
    over_original: Gain = Gain()
    over_vanilla: Gain | None = None  # None where plain fine-tuning was not run, failed, or is the model itself
    pull: tuple[float, float] | None = (
        None  # what the artifact adds to the biased class's probability, before and after
    )
    pull_change: Interval | None = None
    false_alarms: tuple[float, float] | None = None  # of the biased class, with the artifact, before and after
    specificity_change: Interval | None = None  # one minus those, after minus before
    flips_beyond_clean: Interval | None = None  # flip rate after minus that of a model trained on clean data


def rule_on(seen: Seen) -> Ruling:
    """Apply the rule, as `describe_rule` puts it in words."""
    if not seen.is_usable:
        return "do not use"
    accuracy, flips = _clear_accuracy(seen), _clear_flips(seen)
    if accuracy is None and flips is None:
        return "cannot be known"
    if _pulls_harder(seen) or -1 in (accuracy, flips) or 1 not in (accuracy, flips):
        return "not corrected"
    if accuracy == flips == 1 and seen.flips is not None and seen.flips[1] <= seen.flips[0] / 2:
        # the upper end: only images enough can show that nothing is left
        is_as_clean = seen.flips_beyond_clean is not None and seen.flips_beyond_clean[1] <= MARGIN
        return "as a clean-trained model" if is_as_clean else "corrected"
    return "partly corrected"


def explain(seen: Seen) -> str:
    """Say what no difference to the model as it came shows, and yet counts against a model; empty where nothing."""
    if not seen.is_usable:
        return ""
    if _pulls_harder(seen):
        return _describe_pull(seen)
    alone = Seen(flips=seen.flips, over_original=seen.over_original, flips_beyond_clean=seen.flips_beyond_clean)
    if rule_on(alone) != rule_on(seen):
        return "What is won, or part of it, is won by plain fine-tuning (Vanilla) alone."
    return ""


def describe_rule(seen: Seen, *, budget: float, class_budgets: Mapping[str, float] | None = None) -> str:
    """Put the rule in words, as far as it can be applied.

    Args:
        budget: What balanced accuracy without the artifact may lose.
        class_budgets: What the sensitivity to a class may lose there, by its name.
    """
    gain = seen.over_original
    if gain.accuracy is None and gain.flips is None:
        return "without images enough with the artifact, nothing is called corrected."
    than = "the original model" + ("" if seen.over_vanilla is None else " and than plain fine-tuning (Vanilla)")
    classes = "".join(
        f", the sensitivity to “{name}” at most {100 * most:g}" for name, most in (class_budgets or {}).items()
    )
    clean = f"balanced accuracy without it loses at most {100 * budget:g} points{classes} (beyond one standard error)"
    if gain.flips is None:
        harder = (
            " A model is “not corrected” where more images of other classes with the artifact are called by the class "
            "that it goes with."
            if seen.specificity_change is not None
            else ""
        )
        return (
            f"“partly corrected” is a model that has a higher balanced accuracy with the artifact than {than}, with "
            f"{CONFIDENCE} intervals above zero, while {clean}; more cannot be said where the artifact was not "
            f"inserted.{harder}"
        )
    as_clean = (
        " “As a clean-trained model” is one that, beside this, has at most "
        f"{100 * MARGIN:g} points more flips than a model trained on clean data, at the upper end of the interval."
        if seen.flips_beyond_clean is not None
        else ""
    )
    return (
        "“corrected” is a model for which inserting the artifact changes at most half as many decisions as before, and "
        f"which has fewer such flips and a higher balanced accuracy with the artifact than {than}: with {CONFIDENCE} "
        f"intervals that leave out zero (for the flips, the exact McNemar test must agree: p below {1 - LEVEL:.2g}), "
        f"while {clean}.{as_clean} Less, but one of the two clearly better and none clearly worse, is “partly "
        "corrected”. Where the artifact clearly moves the probability of the class that it goes with by "
        "more than before, or has more images of other classes called by it, a model is “not corrected”."
    )


def _clear_accuracy(seen: Seen) -> int | None:
    """Return 1 for more right answers than every rival's, -1 for fewer than one's, 0 where that is not clear."""
    return _least(_sign(gain.accuracy) for gain in _gains(seen))


def _clear_flips(seen: Seen) -> int | None:
    """Return 1 for fewer flips than every rival's, -1 for more than one's, 0 where that is not clear."""
    return _least(_fewer_flips(gain) for gain in _gains(seen))


def _pulls_harder(seen: Seen) -> bool:
    """Tell whether the artifact moves the biased class's probability by more, or makes it the answer more often."""
    return _moves_more(seen) or _sign(seen.specificity_change) == -1


def _moves_more(seen: Seen) -> bool:
    is_more = seen.pull is not None and abs(seen.pull[1]) > abs(seen.pull[0])
    return is_more and _sign(seen.pull_change) in (-1, 1)


def _describe_pull(seen: Seen) -> str:
    """Say how the artifact has more of a say than before, with the numbers before and after."""
    if seen.pull is not None and _moves_more(seen):
        way = "pulls images harder towards" if seen.pull[1] > 0 else "pushes images harder away from"
        before, after = map(write_points, seen.pull)
        numbers = f": it moves that class's probability by {after} points instead of {before}"
    else:
        way, numbers = "pulls images harder towards", ""
        if seen.false_alarms is not None:
            before, after = map(percent, seen.false_alarms)
            numbers = f": with it, {after} of the images of other classes are called by that class instead of {before}"
    return f"The artifact {way} the class that it goes with than before{numbers}."


def _gains(seen: Seen) -> list[Gain]:
    return [seen.over_original, *([] if seen.over_vanilla is None else [seen.over_vanilla])]


def _least(signs: Iterable[int | None]) -> int | None:
    return min((sign for sign in signs if sign is not None), default=None)


def _sign(change: Interval | None) -> int | None:
    """Return 1 for a clear rise, -1 for a clear fall, 0 where the interval holds zero."""
    if change is None:
        return None
    return 1 if change[0] > 0 else -1 if change[1] < 0 else 0


def _fewer_flips(gain: Gain) -> int | None:
    """Return 1 for clearly fewer flips, -1 for more; where few images differ, the exact test has a say too."""
    sign = _sign(gain.flips)
    if sign is None:
        return None
    return -sign if gain.flips_p is not None and gain.flips_p < 1 - LEVEL else 0


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


Kind = Literal["method", "reference", "failed", "chance", "collapsed"]

CLEAN = "balanced_accuracy_clean"


def kind_of(results: Results, variant: Variant) -> Kind:
    """Tell whether a variant competes; one that diverged, answers at chance level or lost a class never does.

    A head that always gives the same answer flips nothing and looks at nothing: it would win half of the columns.
    """
    if variant.method in REFERENCES:
        return "reference"
    scores = results.chosen(variant)
    if not scores or any(map(results.has_diverged, scores.values())):
        return "failed"
    balanced, chance = scores.get(CLEAN), results.meta.get("chance_level")
    if balanced and chance is not None and balanced.value <= chance + spread_of(balanced):
        return "chance"
    return "collapsed" if lost_classes(results, variant) else "method"


def lost_classes(results: Results, variant: Variant) -> list[int]:
    """Return the classes that the original model answers and this one never does, on clean test images.

    Such a class is missed in all of its images and in no image of another class; where it has too few to be scored,
    the validation images decide alone.
    """
    original = results.variant(ORIGINAL)
    before = _never_answered(results, original) if original else set()
    return sorted(_never_answered(results, variant) - before)


def breaks_rule(results: Results, variant: Variant) -> bool:
    """Tell whether the selection rule would reject a method that has no strength to choose instead."""
    return not results.selection.get(variant.method, {}).get("admissible", True)


def objection_to(results: Results, variant: Variant) -> str:
    """Say why a corrected model must not be used; empty where it may."""
    kind = kind_of(results, variant)
    if kind == "failed":
        return "its numbers are not finite" if results.chosen(variant) else why_no_model(results, variant.method)
    if kind == "chance":
        value = percent(results.chosen(variant)[CLEAN].value)
        return f"it answers no better than chance (balanced accuracy {value} on images without the artifact)"
    if kind == "collapsed":
        names = " and ".join(f"“{results.class_title(label)}”" for label in lost_classes(results, variant))
        return f"it never answers {names}, which the original model does"
    if kind == "method" and breaks_rule(results, variant):
        told = results.selection[variant.method].get("objection")
        return f"on validation images it {results.with_class_names(told)}" if told else "it breaks the selection rule"
    if kind == "method" and (loss := overspent(results, variant)):
        allowed = f"{100 * budget_of(results):g}"
        return f"it {loss} of balanced accuracy on test images without the artifact, and {allowed} are allowed"
    if kind == "method" and (loss := overspent_class(results, variant)):
        return f"it {loss}"
    return ""


def why_no_model(results: Results, method: str) -> str:
    """Say why a method has no model at all."""
    reason = results.with_class_names(str(results.selection.get(method, {}).get("reason", "")))
    return reason.strip().rstrip(".") or "it has no usable result"


def overspent(results: Results, variant: Variant) -> str:
    """Say what a model loses on clean test images if that is more than the budget, beyond one standard error."""
    original = results.variant(ORIGINAL)
    before, after = (results.chosen(each).get(CLEAN) if each else None for each in (original, variant))
    if original is None or before is None or after is None or not math.isfinite(before.value + after.value):
        return ""
    change, error = _change(before, after, results.difference(variant, original, CLEAN))
    return _lost_points(change, error) if -change - error > budget_of(results) else ""


def overspent_class(results: Results, variant: Variant) -> str:
    """Say which class loses more on clean test images than its budget, beyond one standard error."""
    original = results.variant(ORIGINAL)
    before, after = (results.of_classes(each, "sensitivity_clean") if each else {} for each in (original, variant))
    for label, allowed in class_budgets_of(results).items():
        if label in before.keys() & after.keys():
            change, error = _change(before[label], after[label], results.class_difference(variant, label))
            if -change - error > allowed:
                title = results.class_title(label)
                return (
                    f"{_lost_points(change, error)} of its sensitivity to “{title}” on test images without the "
                    f"artifact, and {100 * allowed:g} are allowed"
                )
    return ""


def _change(before: Row, after: Row, pair: Difference | None) -> tuple[float, float]:
    """Return a change and its error: image by image where that is known, else as if the images were different ones."""
    if pair is not None:
        return pair.value, pair.stderr
    return after.value - before.value, math.hypot(spread_of(before), spread_of(after))  # the larger error


def _lost_points(change: float, error: float) -> str:
    return f"loses {100 * -change:.1f} ± {100 * error:.1f} points"


def budget_of(results: Results) -> float:
    """Return what a correction may lose in balanced accuracy on clean images."""
    return float(results.meta.get("budget", BalancedRule.budget))


def class_budgets_of(results: Results) -> dict[int, float]:
    """Return what single classes may lose; JSON made texts of their numbers."""
    return {int(label): float(most) for label, most in results.meta.get("class_budgets", {}).items()}


def _never_answered(results: Results, variant: Variant) -> set[int]:
    sensitivity = results.of_classes(variant, "sensitivity_clean")
    specificity = results.of_classes(variant, "specificity_clean")
    both = sensitivity.keys() & specificity.keys()
    return {label for label in both if sensitivity[label].value == 0 and specificity[label].value == 1}


def tested_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the scores of final models on the test images."""
    return tuple(row for row in rows if row.split == "test" and row.epoch is None)


def validated_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the scores of the chosen models on the validation images."""
    return tuple(row for row in rows if row.split == "val" and row.chosen)


def load_results(run: Path) -> Results:
    """Read results.csv, results.json and, where they are there, heatmaps.npz and doctor.json of a run folder."""
    if run.is_file():
        raise RunError(f"{run} is a file, and a run's folder is wanted: for a run file, what it gives as 'out'.")
    if not run.is_dir():
        raise RunError(f"There is no run folder {run}.{neighbour(run)}")
    table, summary = run / "results.csv", run / "results.json"
    for path in (table, summary):
        if not path.is_file():
            raise RunError(
                f"{run} is not a finished run: it has no {path.name}. Let the run end first: it writes it last."
            )
    rows = read_rows(table)
    try:
        content = json.loads(summary.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunError(f"{summary} is not valid JSON: {error}.") from error
    heatmaps, doctor = run / "heatmaps.npz", run / "doctor.json"
    try:
        return Results(
            rows=tested_rows(rows),
            meta=content.get("meta", {}),
            selection=content.get("selection", {}),
            heatmaps=read_heatmaps(heatmaps) if heatmaps.is_file() else None,
            paired=tuple(Difference(**each) for each in content.get("paired", ())),
            paired_classes=tuple(Difference(**each) for each in content.get("paired_classes", ())),
            intervals={
                method: {metric: (low, high) for metric, (low, high) in found.items()}
                for method, found in content.get("intervals", {}).items()
            },
            validated=validated_rows(rows),
            rulings={method: Judgement(**each) for method, each in content.get("rulings", {}).items()},
            unknown=tuple(Unknown(**each) for each in content.get("unknown", ())),
            doctor=Diagnosis.from_json(doctor.read_text(encoding="utf-8")) if doctor.is_file() else None,
            further=tuple(filter(further_artifact, rows)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{run} was written by another version of hansfree, or is damaged ({error}). Run it again."
        ) from error
