"""The first screen of a run as data, for the page and the terminal: badge, three numbers, and the methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hansfree.evaluation import (
    BIASED,
    CLEAN,
    FLIPS,
    ORIGINAL,
    REFERENCES,
    Results,
    Row,
    Variant,
    find_rejection,
    shown_variant,
    takes_out_direction,
)
from hansfree.metrics import Metric
from hansfree.reasons import VerdictLevel
from hansfree.report.numbers import (
    MISSING,
    interval_at_end,
    unit_of,
    write_point_range,
    write_points,
    write_range,
    write_stderr,
    write_value,
)
from hansfree.report.text import LEVEL_TITLES, SEEN, SENTENCES

Tone = Literal["good", "fair", "poor", "none"]
Trend = Literal["better", "worse", "same", "unknown"]

_BADGES: dict[VerdictLevel, tuple[str, Tone]] = {
    VerdictLevel.AS_REFERENCE: ("✓", "good"),
    VerdictLevel.CORRECTED: ("✓", "good"),
    VerdictLevel.PARTLY_CORRECTED: ("◐", "fair"),
    VerdictLevel.NOT_CORRECTED: ("✗", "poor"),
    VerdictLevel.UNKNOWN: ("?", "none"),
    VerdictLevel.UNUSABLE: ("⊘", "poor"),
}
_TILES = SENTENCES["tiles"]
_TRENDS: dict[Trend, str] = {"better": "✓", "worse": "✗", "same": "●", "unknown": ""}


@dataclass(frozen=True)
class Badge:
    """A verdict as words and an icon, so that colour is never alone."""

    title: str
    icon: str
    tone: Tone

    @classmethod
    def of(cls, level: VerdictLevel) -> Badge:
        """Return the badge of a level."""
        title = LEVEL_TITLES[level]
        return cls(f"{title[:1].upper()}{title[1:]}", *_BADGES[level])


@dataclass(frozen=True)
class Number:
    """One score as it is printed, with its interval or its standard error; "n/a" where it is not available."""

    value: str = "n/a"
    interval: str = ""

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.value != "n/a"


@dataclass(frozen=True)
class Tile:
    """A score before and after, and how it was measured."""

    title: str
    unit: str
    before: Number
    after: Number
    trend: Trend
    change: str  # in points; empty where the two were not compared on the same images
    interval: str  # of the change
    how: str
    is_stand_in: bool  # not measured by inserting the artifact, or not available

    @property
    def sign(self) -> str:
        """The trend as a sign, so that colour is never alone."""
        return _TRENDS[self.trend]


@dataclass(frozen=True)
class Line:
    """A model with its verdict and the three numbers."""

    method: str
    title: str
    badge: Badge | None  # None for a reference
    numbers: tuple[Number, ...]
    is_shown: bool


@dataclass(frozen=True)
class Summary:
    """What a reader sees first."""

    badge: Badge
    subject: str  # the method that the verdict is about; empty where none has a usable result
    status: str  # whether the run recommends it
    tiles: tuple[Tile, ...]
    lines: tuple[Line, ...]
    heads: tuple[str, ...]  # of the numbers of a line

    def shortened(self, most: int) -> tuple[Line, ...]:
        """Return at most so many lines, in their order: the original, the shown model, then the others."""
        order = sorted(self.lines, key=lambda line: (line.method != ORIGINAL, not line.is_shown))
        return tuple(line for line in self.lines if line in order[:most])


def summarize(results: Results) -> Summary:
    """Return the first screen of a run."""
    shown = shown_variant(results)
    verdict = results.verdicts.get(shown.method) if shown else None
    level = VerdictLevel.UNUSABLE
    if shown is not None and find_rejection(results, shown) is None:
        level = verdict.level if verdict else VerdictLevel.UNKNOWN
    effect = _effect_metric(results, shown)
    metrics = (effect or FLIPS, BIASED, CLEAN)
    return Summary(
        badge=Badge.of(level),
        subject=results.title(shown) if shown else "",
        status=_status(results, shown, level),
        tiles=tuple(_tile(results, shown, metric) for metric in metrics),
        lines=_lines(results, shown, metrics),
        heads=tuple(_TILES[f"{metric}.head"] for metric in metrics),
    )


def _status(results: Results, shown: Variant | None, level: VerdictLevel) -> str:
    if "recommended" not in results.meta or shown is None:
        return ""
    recommended = results.meta["recommended"]
    if recommended is None:
        return SENTENCES["status"]["none"]
    if recommended != shown.method:
        return ""
    return SENTENCES["status"]["guess" if level == VerdictLevel.UNKNOWN else "recommended"]


def _effect_metric(results: Results, shown: Variant | None) -> str | None:
    """Return the score of what the artifact does: flips, or what stands in for them; None where nothing does."""
    if results.is_inserted or shown is None:
        return FLIPS
    return SEEN if results.pair(results.original, shown, SEEN) and not takes_out_direction(shown.method) else None


def _tile(results: Results, shown: Variant | None, metric: str) -> Tile:
    original = results.original
    before, after = (_number(results, each, metric) for each in (original, shown))
    known = results.difference(shown, original, metric) if shown else None
    trend: Trend = "unknown"
    if known is not None:
        is_fewer_better = Metric.named(metric).ideal == 0
        is_clear = known.low > 0 or known.high < 0
        trend = "same" if not is_clear else "better" if (known.value < 0) == is_fewer_better else "worse"
    return Tile(
        title=_TILES[metric],
        unit=unit_of(metric),
        before=before,
        after=after,
        trend=trend,
        change=write_points(known.value) if known else "",
        interval=write_point_range(known.low, known.high) if known else "",
        how=_how(results, shown, metric),
        is_stand_in=not before.is_known or metric == SEEN or (metric == FLIPS and bool(results.meta.get("transplant"))),
    )


def _how(results: Results, shown: Variant | None, metric: str) -> str:
    """Say how a number was measured, or why there is none."""
    rows = [row for each in (results.original, shown) if (row := results.chosen(each).get(metric))]
    n = f"{max(row.n or 0 for row in rows):,}" if rows else ""
    artifact = f"the {results.meta['artifact']} artifact" if results.meta.get("artifact") else "the artifact"
    if not rows:
        unknown = results.why_unknown(metric)
        reason = unknown.reason if unknown else _TILES["natural"] if not results.is_inserted else _TILES["missing"]
        return f"{reason[:1].upper()}{reason[1:]}."
    kind = "natural" if not results.is_inserted else "transplant" if results.meta.get("transplant") else "inserted"
    what = SENTENCES["transplants"].get(str(results.meta.get("transplant")), "")
    return _TILES[f"{metric}.{kind}"].format(n=n, artifact=artifact, what=what)


def _number(results: Results, variant: Variant | None, metric: str) -> Number:
    row = results.chosen(variant).get(metric)
    if variant is None or row is None or not math.isfinite(row.value):
        return Number()
    return Number(write_value(metric, row.value), _interval(results, variant, row))


def _interval(results: Results, variant: Variant, row: Row) -> str:
    interval = results.interval(variant, row.metric) or interval_at_end(row)
    if interval is not None:
        return write_range(*interval)
    error = write_stderr(row.metric, row.stderr)
    return f"± {error}" if error else ""


def _lines(results: Results, shown: Variant | None, metrics: Sequence[str]) -> tuple[Line, ...]:
    found = []
    for variant in results.methods():
        if not results.is_first(variant):
            continue
        verdict = results.verdicts.get(variant.method)
        badge = None
        if variant.method not in REFERENCES:
            badge = Badge.of(verdict.level if verdict else VerdictLevel.UNKNOWN)
        numbers = tuple(_number(results, variant, metric) for metric in metrics)
        found.append(Line(variant.method, results.title(variant), badge, numbers, variant == shown))
    return tuple(found)


def write_number(number: Number) -> str:
    """Write a score with its interval in brackets, or its standard error."""
    if not number.is_known:
        return MISSING
    is_error = number.interval.startswith("±")
    return " ".join(filter(None, (number.value, number.interval if is_error else f"({number.interval})")))
