"""Heatmaps side by side: of the corrected models, and of the CAVs themselves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hansfree.report.heatmap_set import HeatmapSet
from hansfree.report.maps import common_limit
from hansfree.report.reading import method_title
from hansfree.report.style import ALARM, Drawing, drawn_order
from hansfree.reproduce.figures.panels import image_grid, name_row, panel_titles, show_image
from hansfree.reproduce.keys import SubjectKey

_MOST_IMAGES = 4  # of a subject

Sets = Mapping[SubjectKey, HeatmapSet]


def draw_method_heatmaps(sets: Sets) -> Drawing | None:
    """Draw the heatmap panel: input, then every method in the paper's order; an image's row has one colour scale."""
    methods = [name for name in drawn_order() if any(name in maps.relevance for maps in sets.values())]
    methods += sorted({name for maps in sets.values() for name in maps.relevance} - set(methods))
    figure = _grid(sets, {name: method_title(name) for name in methods}, is_scale_shared=True)
    if figure is None:
        return None
    is_whole = all(name in maps.relevance for maps in sets.values() for name in methods)
    missing = "" if is_whole else " No model: the method was not run there, or no strength of it was fit to be taken."
    return Drawing(
        "heatmap-panel",
        figure,
        f"LRP heatmaps of biased images under {', '.join(map(method_title, methods))}.",
        "LRP heatmaps of biased images: red speaks for the biased class (the one that has the artifact in training), "
        "blue against it. One colour scale per image, the same for all methods; the green outline is the artifact "
        "where it has a place." + missing,
    )


def draw_localisation(sets: Sets) -> Drawing | None:
    """Draw where each CAV sees the artifact: input, then LRP of the score along the CAV, by the CAV's name.

    Scores along different CAVs have no common unit, so that every heatmap has its own colour scale.
    """
    names = list(dict.fromkeys(name for maps in sets.values() for name in maps.relevance))
    figure = _grid(sets, {name: name for name in names}, is_scale_shared=False)
    if figure is None:
        return None
    return Drawing(
        "localisation",
        figure,
        f"LRP heatmaps of the score along the CAVs {', '.join(names)}.",
        "Where the score along each CAV comes from (LRP), each heatmap on its own colour scale; the green outline is "
        "the artifact where it has a place.",
    )


def show_relevance(axes: Axes, relevance: np.ndarray, limit: float) -> None:
    """Show relevance in red and blue around 0; one that is not finite is said to be so."""
    if np.isfinite(relevance).all():
        axes.imshow(relevance, vmin=-limit, vmax=limit, cmap="RdBu_r", interpolation="nearest")
    else:
        axes.text(0.5, 0.5, "not finite", ha="center", va="center", color=ALARM, transform=axes.transAxes, fontsize=8)


def _grid(sets: Sets, columns: Mapping[str, str], *, is_scale_shared: bool) -> Figure | None:
    lines = [(key, i) for key, maps in sets.items() for i in range(min(len(maps.images), _MOST_IMAGES))]
    if not lines or not columns:
        return None
    names = panel_titles(sets)
    figure, grid = image_grid(len(lines), 1 + len(columns))
    for row, (axes_row, (key, i)) in enumerate(zip(grid, lines)):
        maps = sets[key]
        shared = common_limit(found[i] for found in maps.relevance.values())
        show_image(axes_row[0], maps.images[i], title="input" if row == 0 else "", mask=maps.masks[i])
        if i == 0:
            name_row(axes_row[0], names[key])
        for axes, (name, title) in zip(axes_row[1:], columns.items()):
            if name in maps.relevance:
                relevance = maps.relevance[name][i]
                show_relevance(axes, relevance, shared if is_scale_shared else common_limit([relevance]))
            else:
                axes.set_box_aspect(maps.masks[i].shape[0] / maps.masks[i].shape[1])
                axes.text(0.5, 0.5, "no model", ha="center", va="center", transform=axes.transAxes, fontsize=8)
            mask = maps.masks[i] if name in maps.relevance else None
            show_image(axes, None, title=title if row == 0 else "", mask=mask)
    return figure
