"""The picture of a benchmark: every ratio with its range and its target, on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.measures import Measure
from hansfree._internal.files import written_atomically
from hansfree.report.figures import ALARM, INK, OTHER_STYLE, new_figure, quiet_axes


def draw_ratios(path: Path, measures: Sequence[Measure]) -> None:
    """Write a PNG; numbers that are no ratios are left out, for they have no common axis."""
    shown = [measure for measure in measures if measure.unit == "ratio"][::-1]  # the first on top
    figure = new_figure(height=1.2 + 0.28 * len(shown))
    (axes,) = quiet_axes(figure)
    places = range(len(shown))
    colour, marker = OTHER_STYLE
    axes.hlines(places, [one.low for one in shown], [one.high for one in shown], color=colour, linewidth=2)
    axes.plot([one.value for one in shown], places, marker, color=colour, linestyle="none", label="median and range")
    aims = [(one.target.limit, place) for place, one in zip(places, shown) if one.target is not None]
    if aims:
        axes.plot(*zip(*aims), "|", color=ALARM, markersize=14, markeredgewidth=2, linestyle="none", label="target")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(list(places), [one.name for one in shown])
    axes.set_xlabel("ratio, both sides in turns in one run")
    axes.legend(loc="best", frameon=False, fontsize=9)
    with written_atomically(path) as temporary:
        figure.savefig(temporary, dpi=120)
