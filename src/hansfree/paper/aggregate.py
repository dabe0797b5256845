"""Means over seeds, and the keys of subjects."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from hansfree._internal.statistics import STDERRS
from hansfree.corrections import LatentCorrection
from hansfree.data import Artifact
from hansfree.evaluation import CLEAN_TRAINED, ORIGINAL, Results, Row, Variant, method_title
from hansfree.paper.dataset import Published
from hansfree.pipeline import Grid
from hansfree.report import MISSING, write_stderr, write_value

PairedDifferences = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]


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
    """What a reader must know to read a subject's scores; None where it cannot be known."""

    chance_level: float | None = None  # balanced accuracy of always giving the same answer
    class_names: tuple[str, ...] = ()  # empty: classes are shown by number
    majority_rate: float | None = None
    is_localized: bool | None = None  # None: as the artifact of that name says, if there is one
    published: Published | None = None  # where data, artifact and model are the paper's
    departures: tuple[str, ...] = ()  # in what the setting is not the paper's
    grid: Grid = "own"  # whose units the strengths have
    reasons: Mapping[str, str] = field(default_factory=dict)  # method -> why this strength, or why none, was taken
    # (method, rival) -> metric -> the method's score minus the rival's on the same images, with its standard error
    paired: PairedDifferences = field(default_factory=dict)


Subjects = Mapping[SubjectKey, Sequence[Row]]

FactsBySubject = Mapping[SubjectKey, Facts]


def count_epochs(n: int) -> str:
    """Return the number with its noun."""
    return f"{n} epoch" if n == 1 else f"{n} epochs"


def is_localized(key: SubjectKey, facts: Facts) -> bool | None:
    """Tell whether the artifact has a place in the image; None for a natural one of which nothing was said."""
    if facts.is_localized is not None:
        return facts.is_localized
    artifact = Artifact.members().get(key.artifact)
    return None if artifact is None else artifact.localized


K = TypeVar("K", bound=Hashable)

Scores = Mapping[str, Mapping[str, "Average"]]  # method -> metric -> its mean


SIGNIFICANT = STDERRS  # half of a 95 % interval

PAPER_METHODS = tuple(LatentCorrection.defaults())  # in the order of its Table 1


@dataclass(frozen=True)
class Average:
    """A score over its repeats.

    ``stderr`` is the error that other test images would make, as one repeat has it (root mean square over the
    repeats): all repeats score the same images, so it does not shrink with their number. ``spread`` is the standard
    deviation over the repeats, None where there is one.
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
    """Average the rows that share a key; a repeat that is not a number makes the mean none, it is not left out."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {key: _average(sorted(group, key=lambda row: row.seed or 0)) for key, group in groups.items()}


def unseeded(row: Row) -> Variant:
    """Return what a row is a repeat of: the method and its options, whatever the seed."""
    return replace(Variant.of(row), experiment="", seed=None)


def paper_place(method: str) -> int:
    """Return where a method stands in the paper's tables: the original first, what is new before the reference."""
    order = (ORIGINAL, *PAPER_METHODS)
    return order.index(method) if method in order else len(order) + (method == CLEAN_TRAINED)


def final_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the scores of fully trained models (and of CAVs) on all test images."""
    return [row for row in rows if row.split in (None, "test") and row.epoch is None and row.group is None]


def chosen_scores(rows: Iterable[Row]) -> dict[Variant, dict[str, Average]]:
    """Return the mean scores of every variant at its chosen strength, by metric."""
    found = average(
        (row for row in final_rows(rows) if row.chosen and not row.method.startswith("cav:")),
        lambda row: (unseeded(row), row.metric),
    )
    scores: dict[Variant, dict[str, Average]] = {}
    for (variant, metric), mean in found.items():
        scores.setdefault(variant, {})[metric] = mean
    return scores


def cav_scores(rows: Iterable[Row], metric: str) -> dict[str, Average]:
    """Return a metric of every CAV by the CAV's name; one that is not a number has none."""
    found = average(
        (row for row in final_rows(rows) if row.method.startswith("cav:") and row.metric == metric),
        lambda row: row.method.removeprefix("cav:"),
    )
    return {name: mean for name, mean in found.items() if math.isfinite(mean.value)}


def method_scores(rows: Iterable[Row]) -> dict[str, dict[str, Average]]:
    """Return the mean scores by method; where one was run with several options, its first variant stands for it."""
    found: dict[str, dict[str, Average]] = {}
    for variant, scores in chosen_scores(rows).items():
        found.setdefault(variant.method, scores)
    return found


def paired_lead(scores: Scores, facts: Facts, method: str, rival: str, metric: str) -> tuple[float, float] | None:
    """Return by how much a method's mean is above a rival's on the same images, and the whole error of that.

    The images' part of the error is that of the first seed's pairs; the seeds' part is that of both means.
    """
    ours, theirs = scores.get(method, {}).get(metric), scores.get(rival, {}).get(metric)
    paired = facts.paired.get((method, rival), {}).get(metric) or facts.paired.get((rival, method), {}).get(metric)
    if ours is None or theirs is None or paired is None:
        return None
    if not math.isfinite(ours.value - theirs.value):
        return None
    return ours.value - theirs.value, math.hypot(paired[1], ours.seed_error, theirs.seed_error)


def as_results(rows: Sequence[Row], facts: Facts) -> Results:
    """Return the means in the report's own shape, so that it marks the best and tells who failed by the same rules."""
    scores = chosen_scores(rows)
    means = [
        _row(variant, metric, mean, chosen=1) for variant, found in scores.items() for metric, mean in found.items()
    ]
    tried = average(
        (row for row in final_rows(rows) if not row.method.startswith("cav:")), lambda row: (unseeded(row), row.metric)
    )
    # a variant of which no strength could be chosen stays in the table, as failed
    means += [
        _row(variant, metric, mean, chosen=0) for (variant, metric), mean in tried.items() if variant not in scores
    ]
    # without pairs, which are known for the first seed alone: a column of means is judged by one error, the unpaired
    meta = {"chance_level": facts.chance_level}
    return Results(rows=tuple(means), meta=meta, selection={}, heatmaps=None)


def write_average(metric: str, mean: Average | None) -> str:
    """Write ``value ± error of the test images (spread over the seeds)``, each where it is known."""
    if mean is None:
        return MISSING
    if not math.isfinite(mean.value):
        return "NaN"
    stderr, spread = write_stderr(metric, mean.stderr), write_stderr(metric, mean.spread)
    return write_value(metric, mean.value) + (f" ± {stderr}" if stderr else "") + (f" ({spread})" if spread else "")


def _average(rows: Sequence[Row]) -> Average:
    values = np.array([row.value for row in rows], dtype=np.float64)
    errors = [row.stderr for row in rows if row.stderr is not None]
    counts = [row.n for row in rows if row.n is not None]
    is_finite = bool(np.isfinite(values).all())
    return Average(
        value=float(values.mean()) if is_finite else math.nan,
        stderr=float(np.sqrt(np.mean(np.square(errors)))) if errors else None,
        spread=float(values.std(ddof=1)) if len(values) > 1 and is_finite else None,
        repeats=len(values),
        n=min(counts) if counts else None,
        strength=rows[0].strength,
    )


def _row(variant: Variant, metric: str, mean: Average, *, chosen: int) -> Row:
    return Row(
        experiment="",
        method=variant.method,
        cav=variant.cav,
        target=variant.target,
        norm=variant.norm,
        strength=mean.strength,
        chosen=chosen,
        split="test",
        metric=metric,
        value=mean.value,
        stderr=mean.error,
        n=mean.n,
    )


SECONDS = "seconds_per_epoch"  # the metric of a row that holds a run time; its seed is the number of the run


def seconds_of(rows: Iterable[Row]) -> dict[str, Average]:
    """Return the mean seconds per epoch by method, in the paper's order."""
    found = average((row for row in rows if row.metric == SECONDS), lambda row: row.method)
    return dict(sorted(found.items(), key=lambda item: paper_place(item[0])))


CHANGE = "accuracy_change"  # a method's accuracy on clean test images minus Vanilla's on the same images

GROUPS = ("selected", "random", "all")  # which classes; ends the metric's name


def changes_of(rows: Iterable[Row]) -> dict[Variant, dict[str, Average]]:
    """Return the mean changes of every variant but Vanilla by group of classes, in the paper's order."""
    groups = {f"{CHANGE}_{group}": group for group in GROUPS}
    wanted = [row for row in rows if row.metric in groups and row.chosen != 0 and row.method != "vanilla"]
    changes: dict[Variant, dict[str, Average]] = {}
    for (variant, group), mean in average(wanted, lambda row: (unseeded(row), groups[row.metric])).items():
        changes.setdefault(variant, {})[group] = mean
    return dict(sorted(changes.items(), key=lambda item: paper_place(item[0].method)))


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
