"""Findings of experiments, and their means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from hansfree._internal.statistics import STDERRS
from hansfree.corrections import LatentCorrection
from hansfree.evaluation import CLEAN_TRAINED, ORIGINAL, Results, Row, Variant, method_title
from hansfree.pipeline import Grid
from hansfree.report import MISSING, write_stderr, write_value
from hansfree_paper.dataset import Published
from hansfree_paper.subjects import RuleName

PAPER_METHODS = tuple(LatentCorrection.defaults())  # in the order of its Table 1
SIGNIFICANT = STDERRS  # half of a 95 % interval
SECONDS = "seconds_per_epoch"  # the metric of a row that holds a run time; its seed is the number of the run
CACHED_SECONDS = "seconds_per_epoch_cached"  # the same without the trunk
CHANGE = "accuracy_change"  # a method's accuracy on clean test images minus Vanilla's on the same images
GROUPS = ("selected", "random", "all")  # which classes; ends the metric's name

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class SubjectKey:
    """One model with one bias: a line of the paper's tables, a panel of its figures."""

    data: str
    artifact: str
    model: str

    @property
    def title(self) -> str:
        """Return all three words."""
        return " · ".join((self.model, self.artifact, self.data))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a reader must know to read a subject's scores; None where it is not known."""

    chance_level: float | None = None  # balanced accuracy of a constant prediction
    class_names: tuple[str, ...] = ()  # empty: classes are shown by number
    majority_rate: float | None = None
    is_localized: bool | None = None  # None: as the artifact of that name says, if there is one
    published: Published | None = None  # where data, artifact and model are the paper's
    departures: tuple[str, ...] = ()  # from the paper's setting
    grid: Grid = "own"  # whose units the strengths have
    rule: RuleName = "own"  # that chose the strengths
    reasons: Mapping[str, str] = field(default_factory=dict)  # method -> why this strength or none was chosen
    compared: Mapping[str, float | None] = field(default_factory=dict)  # method -> what the other rule would choose
    # (method, rival) -> metric -> the method's score minus the rival's on the same images, with its standard error
    paired: Mapping[tuple[str, str], Mapping[str, tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Average:
    """A score over its repeats.

    ``stderr`` is the error from the test images, as one repeat has it (root mean square over the repeats): all repeats
    score the same images, so it does not shrink with their number. ``spread`` is the standard deviation over the
    repeats, None where there is one.
    """

    value: float
    stderr: float | None
    spread: float | None
    repeats: int
    n: int | None = None  # images; the smallest number of any repeat
    strength: float | None = None  # of the first repeat, which chose it

    @property
    def seed_error(self) -> float:
        """Return the part of the mean's error that more repeats would make smaller."""
        return (self.spread or 0.0) / math.sqrt(self.repeats)

    @property
    def error(self) -> float:
        """Return the mean's whole standard error: that of the images and that of the seeds."""
        return math.hypot(self.stderr or 0.0, self.seed_error)


def average(rows: Iterable[Row], key: Callable[[Row], K]) -> dict[K, Average]:
    """Average the rows that share a key; a repeat that is not finite makes the mean NaN."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {key: _average(sorted(group, key=lambda row: row.seed or 0)) for key, group in groups.items()}


def _average(rows: Sequence[Row]) -> Average:
    values = np.array([row.value for row in rows], dtype=np.float64)
    errors = [row.stderr for row in rows if row.stderr is not None]
    is_finite = bool(np.isfinite(values).all())
    return Average(
        value=float(values.mean()) if is_finite else math.nan,
        stderr=float(np.sqrt(np.mean(np.square(errors)))) if errors else None,
        spread=float(values.std(ddof=1)) if len(values) > 1 and is_finite else None,
        repeats=len(values),
        n=min((row.n for row in rows if row.n is not None), default=None),
        strength=rows[0].strength,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """The result of an experiment on one subject: what its tables and figures show."""

    key: SubjectKey
    rows: Sequence[Row]
    facts: Facts = field(default_factory=Facts)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # images and heatmaps
    notes: Mapping[str, Any] = field(default_factory=dict)  # what else a figure or a table needs

    @cached_property
    def tested(self) -> list[Row]:
        """The scores of fully trained models on all test images."""
        return [row for row in self._final if not row.method.startswith("cav:")]

    @cached_property
    def chosen(self) -> dict[Variant, dict[str, Average]]:
        """The mean scores of every variant at its chosen strength, by metric."""
        return _nested((row for row in self.tested if row.chosen), lambda row: row.metric)

    @cached_property
    def by_method(self) -> dict[str, dict[str, Average]]:
        """The same by method; where one was run with several options, its first variant stands for it."""
        found: dict[str, dict[str, Average]] = {}
        for variant, scores in self.chosen.items():
            found.setdefault(variant.method, scores)
        return found

    def cavs(self, metric: str) -> dict[str, Average]:
        """Return a metric of every CAV by the CAV's name, without those that are not finite."""
        rows = (row for row in self._final if row.method.startswith("cav:") and row.metric == metric)
        found = average(rows, lambda row: row.method.removeprefix("cav:"))
        return {name: mean for name, mean in found.items() if math.isfinite(mean.value)}

    def seconds(self, metric: str = SECONDS) -> dict[str, Average]:
        """Return the mean seconds per epoch by method, in the paper's order."""
        found = average((row for row in self.rows if row.metric == metric), lambda row: row.method)
        return dict(sorted(found.items(), key=lambda item: paper_place(item[0])))

    @cached_property
    def changes(self) -> dict[Variant, dict[str, Average]]:
        """The mean changes of every variant but Vanilla by group of classes, in the paper's order."""
        groups = {f"{CHANGE}_{group}": group for group in GROUPS}
        rows = [row for row in self.rows if row.metric in groups and row.chosen != 0 and row.method != "vanilla"]
        found = _nested(rows, lambda row: groups[row.metric])
        return dict(sorted(found.items(), key=lambda item: paper_place(item[0].method)))

    def lead(self, method: str, rival: str, metric: str) -> tuple[float, float] | None:
        """Return by how much a method's mean is above a rival's on the same images, with its standard error.

        The images' part of the error is that of the first seed's pairs; the seeds' part is that of both means.
        """
        ours, theirs = (self.by_method.get(name, {}).get(metric) for name in (method, rival))
        paired = self.facts.paired
        pair = paired.get((method, rival), {}).get(metric) or paired.get((rival, method), {}).get(metric)
        if ours is None or theirs is None or pair is None or not math.isfinite(ours.value - theirs.value):
            return None
        return ours.value - theirs.value, math.hypot(pair[1], ours.seed_error, theirs.seed_error)

    def results(self) -> Results:
        """Return the means in the report's form: it marks the best and finds failed models by the same rules.

        A variant without a chosen strength remains, as failed. Pairs are known for the first seed only and left out:
        all means of a column are compared by their own errors.
        """
        tried = _nested(self.tested, lambda row: row.metric)
        scores = [(variant, 1, found) for variant, found in self.chosen.items()]
        scores += [(variant, 0, found) for variant, found in tried.items() if variant not in self.chosen]
        rows = [
            Row(
                **asdict(variant),
                metric=metric,
                value=mean.value,
                stderr=mean.error,
                strength=mean.strength,
                n=mean.n,
                chosen=chosen,
                split="test",
            )
            for variant, chosen, found in scores
            for metric, mean in found.items()
        ]
        return Results(rows=tuple(rows), meta={"chance_level": self.facts.chance_level}, selection={}, heatmaps=None)

    @cached_property
    def _final(self) -> list[Row]:
        return [row for row in self.rows if row.split in (None, "test") and row.epoch is None and row.group is None]


def unseeded(row: Row) -> Variant:
    """Return what a row is a repeat of: the method and its options, whatever the seed."""
    return replace(Variant.of(row), experiment="", seed=None)


def _nested(rows: Iterable[Row], name: Callable[[Row], str]) -> dict[Variant, dict[str, Average]]:
    """Return the means by variant and name."""
    nested: dict[Variant, dict[str, Average]] = {}
    for (variant, each), mean in average(rows, lambda row: (unseeded(row), name(row))).items():
        nested.setdefault(variant, {})[each] = mean
    return nested


def paper_place(method: str) -> int:
    """Return where a method stands in the paper's tables: the original first, what is new before the reference."""
    order = (ORIGINAL, *PAPER_METHODS)
    return order.index(method) if method in order else len(order) + (method == CLEAN_TRAINED)


def write_average(metric: str, mean: Average | None) -> str:
    """Write ``value ± error of the test images (spread over the seeds)``, each where it is known."""
    if mean is None:
        return MISSING
    if not math.isfinite(mean.value):
        return "NaN"
    stderr, spread = write_stderr(metric, mean.stderr), write_stderr(metric, mean.spread)
    return write_value(metric, mean.value) + (f" ± {stderr}" if stderr else "") + (f" ({spread})" if spread else "")


def change_titles(changes: Iterable[Variant], class_names: Sequence[str] = ()) -> dict[Variant, str]:
    """Return the methods' names with the classes that were corrected, where a method has a target class."""
    variants = list(changes)
    titles = {variant: method_title(variant.method) + _corrected(variant.target, class_names) for variant in variants}
    if len(set(titles.values())) < len(titles):  # they differ in something else
        return {variant: variant.title(variants) for variant in variants}
    return titles


def _corrected(target: str | None, class_names: Sequence[str]) -> str:
    if target is None:
        return ""
    numbers = [number.strip() for number in target.strip("[]()").split(",")]
    if not all(map(str.isdigit, numbers)):
        return " (all classes)"
    names = [class_names[int(number)] if int(number) < len(class_names) else number for number in numbers]
    return f" ({'class' if len(names) == 1 else 'classes'} {', '.join(names)})"
