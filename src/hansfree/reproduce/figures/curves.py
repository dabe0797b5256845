"""Ablation of the strength: the accuracies over it, with heatmaps along the curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from hansfree.report.maps import common_limit
from hansfree.report.reading import FIRST
from hansfree.report.style import INK, WIDTH, Drawing, new_figure, quieten, style_of
from hansfree.reproduce.averages import average, final_rows, method_scores, unseeded
from hansfree.reproduce.figures.heatmaps import show_relevance
from hansfree.reproduce.figures.panels import (
    accuracy_name,
    add_legend,
    panel_titles,
    show_fine_percent,
    show_image,
    words,
)
from hansfree.reproduce.keys import SubjectKey, Subjects
from hansfree.results import Row

Curve = dict[float, float]  # strength -> accuracy


@dataclass(frozen=True, eq=False)
class StrengthMaps:
    """One image under several strengths."""

    image: np.ndarray  # uint8 (height, width, 1 or 3), with the artifact
    mask: np.ndarray  # bool (height, width)
    relevance: Mapping[float, np.ndarray]  # strength -> (height, width)


def draw_strength_curves(
    subjects: Subjects, *, maps: Mapping[SubjectKey, StrengthMaps] | None = None
) -> Drawing | None:
    """Draw biased and clean accuracy over the strength, a row per subject, the heatmaps of some strengths below it."""
    maps = maps or {}
    name = accuracy_name(row for rows in subjects.values() for row in final_rows(rows))
    curves = {
        key: (mean_curve(rows, f"{name}_biased"), mean_curve(rows, f"{name}_clean")) for key, rows in subjects.items()
    }
    curves = {key: pair for key, pair in curves.items() if any(pair)}
    if not name or not curves:
        return None
    heights = [2.4 + (1.6 if key in maps else 0.0) for key in curves]
    figure = new_figure(width=WIDTH * 0.85, height=sum(heights) + 0.3)
    outer = figure.add_gridspec(len(curves), 1, height_ratios=heights)
    titles = panel_titles(curves)
    drawn: list[Axes] = []
    for place, (key, (biased, clean)) in enumerate(curves.items()):
        shown = maps.get(key)
        axes = _add_strip(figure, outer[place, 0], shown) if shown else figure.add_subplot(outer[place, 0])
        _draw(axes, biased, clean)
        _draw_vanilla(axes, subjects[key], name)
        for strength in shown.relevance if shown else ():
            axes.axvline(strength, color=INK, linewidth=0.8, linestyle=":", zorder=0)
        chosen = _chosen_strength(subjects[key])
        if chosen in biased:
            colour, marker = style_of(FIRST)
            axes.plot(chosen, biased[chosen], marker=marker, markersize=10, color=colour, mec="white")
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.set_xlabel("strength", fontsize=9, color=INK)
        axes.set_ylabel(words(name), fontsize=9, color=INK)
        drawn.append(axes)
    add_legend(figure, drawn)
    told = "; ".join(
        f"{titles[key]}: best {max(b.values()):.0%} at {max(b, key=lambda s: b[s]):g}"
        for key, (b, _) in curves.items()
        if b
    )
    strips = " Heatmaps (LRP of the biased class, one colour scale) at the dotted strengths." if maps else ""
    return Drawing(
        "strength",
        figure,
        f"Curves of {words(name).lower()} over the strength, with and without the artifact. With it: {told}.",
        f"{words(name)} on the test images over the strength; the large mark is the chosen one.{strips}",
    )


def mean_curve(rows: Sequence[Row], metric: str) -> Curve:
    """Return a metric by strength for RR-ClArC's first variant, means over seeds, in the order of the strengths.

    A strength of 0 has no place on a logarithmic axis; a model that is not finite has no accuracy.
    """
    wanted = [row for row in final_rows(rows) if row.method == FIRST and row.metric == metric and row.strength]
    first = unseeded(wanted[0]) if wanted else None
    means = average((row for row in wanted if unseeded(row) == first), lambda row: row.strength or 0.0)
    return {strength: means[strength].value for strength in sorted(means) if math.isfinite(means[strength].value)}


def _chosen_strength(rows: Sequence[Row]) -> float:
    found = (row.strength for row in final_rows(rows) if row.method == FIRST and row.chosen and row.strength)
    return next(found, math.nan)


def _draw(axes: Axes, biased: Curve, clean: Curve) -> None:
    colour, marker = style_of(FIRST)
    quieten(axes)
    axes.plot(
        list(biased), list(biased.values()), "-", color=colour, marker=marker, markersize=4, label="with artifact"
    )
    axes.plot(list(clean), list(clean.values()), "--", color=INK, linewidth=1.2, label="without")
    axes.set_xscale("log")
    show_fine_percent(axes.yaxis)


def _draw_vanilla(axes: Axes, rows: Sequence[Row], name: str) -> None:
    """Draw what fine-tuning without a penalty gives, where it was run."""
    scores = method_scores(rows).get("vanilla", {})
    for part, line, label in (("biased", "-", "Vanilla, with artifact"), ("clean", "--", "Vanilla, without")):
        mean = scores.get(f"{name}_{part}")
        if mean is not None and math.isfinite(mean.value):
            axes.axhline(mean.value, linestyle=line, color=style_of("vanilla")[0], linewidth=1.2, zorder=1, label=label)


def _add_strip(figure: Figure, spec: SubplotSpec, shown: StrengthMaps) -> Axes:
    """Fill the lower part with the input and the heatmaps from weak to strong; return the axes for the curve."""
    strengths = sorted(shown.relevance)
    inner = spec.subgridspec(2, 1 + len(strengths), height_ratios=(2.4, 1.4))
    limit = common_limit(shown.relevance.values())
    show_image(figure.add_subplot(inner[1, 0]), shown.image, title="input", mask=shown.mask)
    for column, strength in enumerate(strengths, start=1):
        axes = figure.add_subplot(inner[1, column])
        show_relevance(axes, shown.relevance[strength], limit)
        show_image(axes, None, title=f"{strength:g}", mask=shown.mask)
    return figure.add_subplot(inner[0, :])
