"""Figures of the directions and of the images: CAV alignment, and heatmaps before and after."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from hansfree.report.reading import HeatmapSet, Results, method_title, spread_of
from hansfree.report.style import ALARM, INK, WIDTH, Drawing, new_figure, quiet_axes

# label, colour, hatch (the bars are told apart in grey too), place beside the CAV's name
_ALIGNMENTS = {
    "alignment_sample": ("s, per image", "#0072B2", "", -0.19),
    "alignment_mean": ("s\N{COMBINING MACRON}, of the mean", "#E69F00", "///", 0.19),
}
_MOST_IMAGES = 6  # rows of the heatmap grid; more do not tell more
_SCALE_PERCENTILE = 99.0  # of |relevance|: one hot pixel must not bleach all others


def draw_alignment(results: Results) -> Drawing | None:
    """Draw how well each CAV points along what the artifact does to the activations: s and its mean, s-bar."""
    scored = [row for row in results.rows if row.metric in _ALIGNMENTS and math.isfinite(row.value)]
    rows = {(row.method.removeprefix("cav:"), row.metric): row for row in scored}
    names = list(dict.fromkeys(name for name, _ in rows))
    if not names:
        return None
    figure = new_figure(height=0.9 + 0.5 * len(names))
    (axes,) = quiet_axes(figure)
    for metric, (label, colour, hatch, offset) in _ALIGNMENTS.items():
        found = {place + offset: rows[name, metric] for place, name in enumerate(names) if (name, metric) in rows}
        axes.barh(
            list(found), [r.value for r in found.values()], 0.36, color=colour, hatch=hatch, ec="white", label=label
        )
        for place, row in found.items():
            error = spread_of(row)
            axes.errorbar(row.value, place, xerr=error, ecolor=INK, elinewidth=1.4)
            axes.text(max(row.value, 0) + error + 0.01, place, f"{row.value:.2f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *(row.value - 0.02 for row in rows.values())), 1.08)
    axes.set_xlabel("cosine with the true change of the activations (1 is perfect)")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    told = "; ".join(f"{name}, {_ALIGNMENTS[metric][0]}: {row.value:.2f}" for (name, metric), row in rows.items())
    return Drawing(
        "alignment",
        figure,
        f"Bars of the alignment of each CAV. {told}.",
        "How well each direction matches what inserting the artifact really does to the activations: 1 is the same "
        "direction, 0 is at right angles. s is the cosine with the change of each single image, averaged over the "
        "images; s\N{COMBINING MACRON} is the cosine with the mean of these changes, from which what differs between "
        "the images is gone. Lines: one standard error.",
    )


def draw_heatmaps(results: Results) -> Drawing | None:
    """Draw the same images under every method, on one colour scale, with the artifact's outline."""
    maps = results.heatmaps
    if maps is None or not maps.relevance or len(maps.images) == 0:
        return None
    known = [variant.method for variant in results.methods()]  # in the order of the table
    methods = sorted(maps.relevance, key=lambda method: known.index(method) if method in known else len(known))
    n_images = min(len(maps.images), _MOST_IMAGES)
    columns = 1 + len(methods)
    side = WIDTH / max(columns, 5)
    figure = new_figure(width=side * columns, height=side * n_images + 0.8)
    grid = figure.subplots(n_images, columns, squeeze=False)
    limit = _common_limit(maps)
    scale = ScalarMappable(Normalize(-limit, limit), cmap="RdBu_r")
    for row in range(n_images):
        grid[row, 0].imshow(maps.images[row], cmap="gray", vmin=0, vmax=255)  # of grey images; colours stay
        _finish(grid[row, 0], maps.masks[row], "input" if row == 0 else "")
        for axes, method in zip(grid[row, 1:], methods):
            relevance = maps.relevance[method][row]
            if np.isfinite(relevance).all():
                axes.imshow(relevance, norm=scale.norm, cmap=scale.cmap)
            else:
                axes.text(0.5, 0.5, "not finite", ha="center", va="center", color=ALARM, transform=axes.transAxes)
            _finish(axes, maps.masks[row], method_title(method) if row == 0 else "")
    bar = figure.colorbar(scale, ax=grid, orientation="horizontal", fraction=0.02, aspect=60, pad=0.02)
    bar.set_ticks([-limit, 0, limit], labels=["against", "0", "for the class"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=INK, length=0)
    titles = ", ".join(method_title(method) for method in methods)
    name, kind = _explanation(results)
    is_outlined = bool(maps.masks[:n_images].any(axis=(1, 2)).any())  # where it is, is not always known
    return Drawing(
        "heatmaps",
        figure,
        f"{name} heatmaps of {n_images} test images that carry the artifact, for {titles}"
        f"{'; the artifact is outlined' if is_outlined else ''}.",
        f"{kind}: red pixels speak for the explained class, blue ones against it. The same images and one colour "
        f"scale for all methods{'; the green outline is the artifact' if is_outlined else ''}.",
    )


def _explanation(results: Results) -> tuple[str, str]:
    """Return what the heatmaps are called, in short and in full; LRP has no rules for some models."""
    told = str(results.meta.get("explanation") or "lrp")
    return ("LRP", "LRP (epsilon, z+, flat)") if told.lower() == "lrp" else (told.capitalize(), told.capitalize())


def _common_limit(maps: HeatmapSet) -> float:
    """Return one symmetric end of the colour scale for all methods, so that colours can be compared."""
    sizes = np.abs(np.concatenate([relevance.ravel() for relevance in maps.relevance.values()]).astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    return float(np.percentile(sizes, _SCALE_PERCENTILE)) or 1.0 if sizes.size else 1.0


def _finish(axes: Axes, mask: np.ndarray, title: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#BBBBBB")
    axes.set_title(title, fontsize=10, color=INK)
    if mask.any() and not mask.all():  # an artifact that fills the image has no outline
        axes.contour(mask.astype(float), levels=[0.5], colors=["#009E73"], linewidths=1.0)
