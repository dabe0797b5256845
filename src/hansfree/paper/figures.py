"""Figures of the paper's experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import MaxNLocator, PercentFormatter

from hansfree.data import to_rgb
from hansfree.errors import OptionError
from hansfree.evaluation import FIRST, HeatmapSet, Row, Variant, method_title
from hansfree.paper.aggregate import (
    GROUPS,
    Average,
    Facts,
    FactsBySubject,
    SubjectKey,
    Subjects,
    average,
    cav_scores,
    change_titles,
    changes_of,
    chosen_scores,
    final_rows,
    method_scores,
    seconds_of,
    unseeded,
)
from hansfree.report.figures import (
    ALARM,
    BLUE,
    FAINT,
    GREEN,
    INK,
    KINDS,
    ORANGE,
    SKY,
    VERMILION,
    WIDTH,
    Drawing,
    drawn_order,
    new_figure,
    quieten,
    show_percent,
    style_of,
)
from hansfree.report.images import common_limit

ACCURACIES = ("accuracy", "balanced_accuracy")  # the first that the rows have; the paper plots the plain one

_MOST_COLUMNS = 3

_SINGLE = 5.0  # inches: the width of a panel that stands alone

_MARGIN = 0.35  # inches: for the names of rows and columns of images

_FITTING = 14  # letters of 9 points beside an image

_DECIMALS = 3  # of a percent, at most


def panel_titles(keys: Iterable[SubjectKey]) -> dict[SubjectKey, str]:
    """Return what tells the subjects apart; of a single one, everything."""
    keys = list(keys)
    fields = [name for name in ("model", "artifact", "data") if len({getattr(key, name) for key in keys}) > 1]
    return {key: " · ".join(getattr(key, name) for name in fields) if fields else key.title for key in keys}


def panel_grid(keys: Collection[SubjectKey], *, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """Return a quiet panel per subject; all share their scales, and one alone is not stretched over the page.

    A row holds the biases of one model where they are four at most and every model has as many.

    Args:
        keys: the subjects, in the order of the panels.
        height: of one row, in inches.
    """
    per_model = set(Counter(key.model for key in keys).values())
    n = len(keys)
    columns = per_model.pop() if len(per_model) == 1 else _MOST_COLUMNS
    columns = min(n, columns if 1 < columns <= 4 else _MOST_COLUMNS)
    figure = new_figure(width=_SINGLE if n == 1 else WIDTH, height=height * math.ceil(n / columns) + 0.4)
    grid = figure.subplots(math.ceil(n / columns), columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in grid[:n]:
        quieten(axes)
    for place, axes in enumerate(grid[n:], start=n):
        axes.remove()
        grid[place - columns].tick_params(labelbottom=True)  # now the lowest panel of its column
    return figure, list(grid[:n])


def name_ticks(panels: Sequence[Axes], names: Sequence[str]) -> None:
    """Write words under the bars 0, 1, ...; slanted where panels are narrow."""
    is_narrow = len(panels) > _MOST_COLUMNS
    for axes in panels:
        axes.set_xticks(range(len(names)), names, fontsize=8)
        for label in axes.get_xticklabels():
            label.set(rotation=30 if is_narrow else 0, ha="right" if is_narrow else "center")
        axes.grid(axis="x", visible=False)


def accuracy_name(rows: Iterable[Row]) -> str | None:
    """Return the accuracy that the rows have both without and with the artifact, None for none."""
    present = {row.metric for row in rows}
    return next((name for name in ACCURACIES if {f"{name}_clean", f"{name}_biased"} <= present), None)


def words(metric: str) -> str:
    """Return a metric's name as it stands beside an axis."""
    return metric.replace("_", " ").capitalize()


def show_image(axes: Axes, image: np.ndarray | None, *, title: str = "", mask: np.ndarray | None = None) -> None:
    """Show pixels without ticks; the mask's outline is drawn unless it is empty or fills the image."""
    if image is not None:
        axes.imshow(to_rgb(image), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#BBBBBB")
    axes.set_title(title, fontsize=9, color=INK)
    if mask is not None and mask.any() and not mask.all():
        axes.contour(mask.astype(float), levels=[0.5], colors=[GREEN], linewidths=1.0)


def image_grid(rows: int, columns: int, *, side: float | None = None, extra: float = 0.0) -> tuple[Figure, np.ndarray]:
    """Return a figure and its (rows, columns) axes for square images, as wide as the page at most.

    Args:
        rows: of the grid.
        columns: of the grid.
        side: an image's width in inches; None fills the page with at least five columns.
        extra: for words above the images of every row but the first, in inches.
    """
    side = side or (WIDTH - _MARGIN) / max(columns, 5)
    figure = new_figure(width=side * columns + _MARGIN, height=(side + extra) * rows + _MARGIN)
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    return figure, figure.subplots(rows, columns, squeeze=False)


def name_row(axes: Axes, text: str) -> None:
    """Write a row's name to the left of its first image, each word in a line and small enough for the image's side."""
    lines = text.split(" · ")
    size = 9.0 * min(1.0, _FITTING / max(1, *map(len, lines)))
    axes.set_ylabel("\n".join(lines), fontsize=size, color=INK)


class _FinePercent(PercentFormatter):
    """Percent with as many decimals as the ticks need to differ, and no more."""

    def format_ticks(self, values: list[float]) -> list[str]:
        shares = 100 * np.asarray(values, dtype=np.float64)
        self.decimals = next(
            (d for d in range(_DECIMALS) if np.allclose(shares, shares.round(d), atol=1e-6)), _DECIMALS
        )
        return super().format_ticks(values)


def show_fine_percent(*sides: Axis) -> None:
    """Write the ticks of shares in percent, also on an axis that spans a few points only."""
    for side in sides:
        side.set_major_formatter(_FinePercent(1.0))


def add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Collect the labels of all panels, each once, in one legend above them."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if handles:
        widest = 0.6 + 0.075 * max(map(len, handles))  # inches: the sign and, at 9 points, the letters
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=max(1, min(len(handles), int(figure.get_figwidth() / widest))),
            frameon=False,
            fontsize=9,
            columnspacing=1.2,
            handletextpad=0.5,
        )


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
    summary = "; ".join(
        f"{titles[key]}: best {max(b.values()):.0%} at {max(b, key=lambda s: b[s]):g}"
        for key, (b, _) in curves.items()
        if b
    )
    strips = " Heatmaps (LRP of the biased class, one colour scale) at the dotted strengths." if maps else ""
    return Drawing(
        "strength",
        figure,
        f"Curves of {words(name).lower()} over the strength, with and without the artifact. With it: {summary}.",
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


_SETS = {"biased": "with the artifact", "clean": "without"}

_MOST_STRENGTHS = 7  # more lines are indistinguishable

_MARKERS = "osD^vPX"

Lines = dict[tuple[float, str], dict[int, float]]  # (strength, set) -> epoch -> accuracy


def draw_epochs(subjects: Subjects) -> Drawing | None:
    """Draw biased (above) and clean accuracy over the epochs, a column per subject, weak strengths dark, strong bright.

    Of many strengths, a few that are evenly spread are shown.
    """
    rows = {
        key: [row for row in found if row.epoch is not None and row.method == FIRST] for key, found in subjects.items()
    }
    name = accuracy_name(row for found in rows.values() for row in found)
    lines = {key: _lines(found, name) for key, found in rows.items()} if name else {}
    lines = {key: found for key, found in lines.items() if found}
    if not name or not lines:
        return None
    every = sorted({strength for found in lines.values() for strength, _ in found})
    picked = [every[i] for i in np.unique(np.linspace(0, len(every) - 1, _MOST_STRENGTHS).round().astype(int))]
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(picked)))
    figure = new_figure(width=5.0 if len(lines) == 1 else WIDTH, height=5.2)
    grid = figure.subplots(2, len(lines), sharex=True, sharey="row", squeeze=False)
    titles = panel_titles(lines)
    for column, (key, found) in zip(grid.T, lines.items()):
        for axes, part in zip(column, _SETS):
            quieten(axes)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for strength, colour, marker in zip(picked, colours, _MARKERS):
                if curve := found.get((strength, part)):
                    label = f"strength {strength:g}"
                    axes.plot(
                        list(curve), list(curve.values()), "-", color=colour, marker=marker, markersize=4, label=label
                    )
        column[0].set_title(titles[key], fontsize=9, color=INK)
    for row, label in zip(grid, _SETS.values()):
        row[0].set_ylabel(f"{words(name)},\n{label}", fontsize=9, color=INK)
        show_fine_percent(row[0].yaxis)
    figure.supxlabel("epoch", fontsize=9, color=INK)
    add_legend(figure, list(grid.ravel()))
    return Drawing(
        "epochs",
        figure,
        f"Curves of {words(name).lower()} on validation images over the epochs for the strengths "
        f"{', '.join(f'{strength:g}' for strength in picked)}.",
        f"{words(name)} on the validation images after every epoch of fine-tuning, for several strengths.",
    )


def _lines(rows: Sequence[Row], name: str) -> Lines:
    metrics = {f"{name}_{part}": part for part in _SETS}
    wanted = [row for row in rows if row.metric in metrics and row.strength is not None]
    means = average(wanted, lambda row: (row.strength or 0.0, metrics[row.metric], row.epoch or 0))
    lines: Lines = {}
    for strength, part, epoch in sorted(means):
        value = means[strength, part, epoch].value
        if math.isfinite(value):
            lines.setdefault((strength, part), {})[epoch] = value
    return lines


# Okabe and Ito's colours with markers of their own
_SAME = "expected"  # all but the mean of "random": drawn over it, dashed

StrengthLines = dict[tuple[str, str, str], dict[float, float]]  # (target, norm, set) -> strength -> accuracy


def draw_targets(subjects: Subjects) -> Drawing | None:
    """Draw two rows per subject, with and without the artifact; targets keep their colour in all panels."""
    name = accuracy_name(row for rows in subjects.values() for row in final_rows(rows))
    lines = {key: _strength_lines(rows, name) for key, rows in subjects.items()} if name else {}
    lines = {key: found for key, found in lines.items() if found}
    if not name or not lines:
        return None
    targets = list(dict.fromkeys(target for found in lines.values() for target, _, _ in found))
    norms = list(dict.fromkeys(norm for found in lines.values() for _, norm, _ in found))
    styles = {target: KINDS[place % len(KINDS)] for place, target in enumerate(targets)}
    width = 5.0 if len(norms) == 1 else WIDTH
    figure = new_figure(width=width, height=4.2 * len(lines) + 0.6)
    grid = figure.subplots(2 * len(lines), len(norms), sharex=True, sharey="row", squeeze=False)
    titles = panel_titles(lines)
    for place, (key, found) in enumerate(lines.items()):
        for row, (part, label) in zip(grid[2 * place : 2 * place + 2], _SETS.items()):
            for axes, norm in zip(row, norms):
                quieten(axes)
                axes.set_xscale("log")
                for target in targets:
                    if curve := found.get((target, norm, part)):
                        colour, marker = styles[target]
                        axes.plot(
                            list(curve),
                            list(curve.values()),
                            "--" if target == _SAME else "-",
                            zorder=3 if target == _SAME else 2,
                            color=colour,
                            marker=marker,
                            markersize=4,
                            label=target,
                        )
                # the subject's name is wider than a panel: it stands above the middle one alone
                head = f"{titles[key]}\n{norm}" if norm == norms[len(norms) // 2] else norm
                axes.set_title(head if part == "biased" else "", fontsize=9, color=INK)
            row[0].set_ylabel(f"{words(name)},\n{label}", fontsize=9, color=INK)
            show_fine_percent(row[0].yaxis)
    figure.supxlabel("strength", fontsize=9, color=INK)
    add_legend(figure, list(grid.ravel()))
    note = f"; {_SAME} is dashed, for it often lies on another line" if _SAME in targets else ""
    return Drawing(
        "targets",
        figure,
        f"Curves of {words(name).lower()} over the strength for the targets {', '.join(targets)} and the norms "
        f"{', '.join(norms)}.",
        f"{words(name)} on the test images over the strength, for each gradient target (colour) and each norm "
        f"(column){note}.",
    )


def _strength_lines(rows: Sequence[Row], name: str) -> StrengthLines:
    metrics = {f"{name}_{part}": part for part in _SETS}
    wanted = [
        row
        for row in final_rows(rows)
        if row.method == FIRST and row.metric in metrics and row.strength and row.target and row.norm
    ]
    means = average(wanted, lambda row: (str(row.target), str(row.norm), metrics[row.metric], row.strength or 0.0))
    lines: StrengthLines = {}
    for target, norm, part, strength in sorted(means, key=lambda key: key[3]):
        value = means[target, norm, part, strength].value
        if math.isfinite(value):
            lines.setdefault((target, norm, part), {})[strength] = value
    return lines


# label, colour, hatch (distinct in greyscale), place beside the CAV's name
_BARS = {
    "alignment_sample": ("s, per image", BLUE, "", -0.2),
    "alignment_mean": ("s\N{COMBINING MACRON}, of the mean", ORANGE, "///", 0.2),
}


def draw_alignments(subjects: Subjects) -> Drawing | None:
    """Draw bars of both alignments with their errors; subjects without CAV scores have no panel."""
    scores = {key: {metric: cav_scores(rows, metric) for metric in _BARS} for key, rows in subjects.items()}
    scores = {key: found for key, found in scores.items() if any(found.values())}
    if not scores:
        return None
    names = list(dict.fromkeys(name for found in scores.values() for means in found.values() for name in means))
    titles = panel_titles(scores)
    figure, panels = panel_grid(scores)
    for axes, (key, found) in zip(panels, scores.items()):
        for metric, (label, colour, hatch, offset) in _BARS.items():
            places = [names.index(name) + offset for name in found[metric]]
            means = found[metric].values()
            axes.bar(
                places,
                [mean.value for mean in means],
                0.38,
                yerr=[mean.error for mean in means],
                color=colour,
                hatch=hatch,
                ec="white",
                ecolor=INK,
                label=label,
            )
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.axhline(0, color=INK, linewidth=0.8)
    figure.supylabel("cosine with the true change", fontsize=9, color=INK)
    panels[0].set_ylim(top=1.05)
    name_ticks(panels, names)
    add_legend(figure, panels)
    summary = "; ".join(
        f"{titles[key]}: " + ", ".join(f"{name} {mean.value:.2f}" for name, mean in found["alignment_mean"].items())
        for key, found in scores.items()
    )
    return Drawing(
        "alignment",
        figure,
        f"Bars of the alignment of each CAV. Of the mean change: {summary}.",
        "Cosine between each CAV and what inserting the artifact does to the activations (1 is perfect). Lines: one "
        "standard error.",
    )


def draw_cav_types(subjects: Subjects) -> Drawing | None:
    """Draw bars of the accuracy with the artifact per CAV type; a dashed line is Vanilla's."""
    name = accuracy_name(row for rows in subjects.values() for row in rows)
    metric = f"{name}_biased"
    bars: dict[SubjectKey, dict[str, Average]] = {}
    vanilla: dict[SubjectKey, float] = {}
    for key, rows in subjects.items():
        for variant, scores in chosen_scores(rows).items():
            if metric not in scores or not math.isfinite(scores[metric].value):
                continue
            if variant.method == FIRST and variant.cav is not None:
                bars.setdefault(key, {}).setdefault(variant.cav, scores[metric])
            elif variant.method == "vanilla":
                vanilla[key] = scores[metric].value
    if not name or not bars:
        return None
    names = list(dict.fromkeys(cav for found in bars.values() for cav in found))
    titles = panel_titles(bars)
    figure, panels = panel_grid(bars, height=2.6)
    for axes, (key, found) in zip(panels, bars.items()):
        axes.bar(
            [names.index(cav) for cav in found],
            [mean.value for mean in found.values()],
            0.65,
            yerr=[mean.error for mean in found.values()],
            color=style_of(FIRST)[0],
            ecolor=INK,
        )
        for cav, mean in found.items():
            axes.annotate(
                f"{100 * mean.value:.0f}",
                (names.index(cav), mean.value + mean.error),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=INK,
            )
        if key in vanilla:
            axes.axhline(vanilla[key], color=INK, linestyle="--", linewidth=1.2, label="Vanilla")
        axes.set_title(titles[key], fontsize=9, color=INK)
    show_percent(panels[0].yaxis)
    figure.supylabel(f"{words(name)}, with the artifact", fontsize=9, color=INK)
    name_ticks(panels, names)
    top = max(mean.value + mean.error for found in bars.values() for mean in found.values())
    panels[0].set_ylim(0, top + 0.1)  # space for the numbers
    add_legend(figure, panels)
    summary = "; ".join(
        f"{titles[k]}, {cav}: {100 * mean.value:.1f} %" for k, found in bars.items() for cav, mean in found.items()
    )
    return Drawing(
        "cav-types",
        figure,
        f"Bars of {words(name).lower()} with the artifact after correction along each CAV. {summary}.",
        "RR-ClArC along different CAVs, each at the strength chosen for it; the dashed line is Vanilla. Lines: one "
        "standard error.",
    )


_COLOURS = dict(zip(GROUPS, ((VERMILION, ""), (SKY, "///"), ("#999999", "..."))))

_WIDTH = 0.26


def draw_changes(subjects: Subjects, *, facts: FactsBySubject | None = None) -> Drawing | None:
    """Draw bars of the change of accuracy against Vanilla with their errors, a panel per subject."""
    changes = {key: changes_of(rows) for key, rows in subjects.items()}
    changes = {key: found for key, found in changes.items() if found}
    if not changes:
        return None
    every_named = {
        key: change_titles(found, (facts or {}).get(key, Facts()).class_names) for key, found in changes.items()
    }
    every = list(dict.fromkeys(title for named in every_named.values() for title in named.values()))
    titles = panel_titles(changes)
    figure, panels = panel_grid(changes, height=0.9 + 0.55 * len(every))
    summary = []
    for axes, (key, found) in zip(panels, changes.items()):
        named = every_named[key]
        for offset, (group, (colour, hatch)) in zip((-_WIDTH, 0.0, _WIDTH), _COLOURS.items()):
            bars = {every.index(named[variant]): means[group] for variant, means in found.items() if group in means}
            axes.barh(
                [place + offset for place in bars],
                [100 * mean.value for mean in bars.values()],
                _WIDTH,
                xerr=[100 * mean.error for mean in bars.values()],
                color=colour,
                hatch=hatch,
                ec="white",
                ecolor=INK,
                label=f"{group} classes",
            )
            summary += [f"{titles[key]}, {every[p]}, {group}: {100 * mean.value:+.1f}" for p, mean in bars.items()]
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(every)), every)
    panels[0].set_ylim(len(every) - 0.5, -0.5)
    figure.supxlabel("change of clean accuracy against Vanilla, points", fontsize=9, color=INK)
    add_legend(figure, panels)
    return Drawing(
        "class-specific",
        figure,
        f"Bars of the change of accuracy against Vanilla in points. {'; '.join(summary)}.",
        "Change of the accuracy on clean test images against Vanilla: on the classes that react most to the artifact, "
        "on as many others, and on all. Lines: one standard error.",
    )


def draw_times(subjects: Subjects) -> Drawing | None:
    """Draw bars of the seconds per epoch on a logarithmic axis, with what they are of Vanilla's beside them."""
    times = {key: seconds_of(rows) for key, rows in subjects.items()}
    times = {key: found for key, found in times.items() if found}
    if not times:
        return None
    every = list(dict.fromkeys(method for found in times.values() for method in found))
    titles = panel_titles(times)
    figure, panels = panel_grid(times, height=0.9 + 0.32 * len(every))
    summary = []
    for axes, (key, found) in zip(panels, times.items()):
        vanilla = found.get("vanilla")
        for method, mean in found.items():
            place = every.index(method)
            colour = style_of(method)[0]
            axes.barh(place, mean.value, 0.65, xerr=mean.seed_error, color=colour, ecolor=INK)
            share = f"{100 * mean.value / vanilla.value:.0f} %" if vanilla else f"{mean.value:.3g} s"
            axes.annotate(
                share,
                (mean.value + mean.seed_error, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
            )
            summary.append(f"{titles[key]}, {method_title(method)}: {mean.value:.3g} s")
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.set_xscale("log")
        axes.grid(axis="y", visible=False)
    values = [mean.value for found in times.values() for mean in found.values()]
    panels[0].set_xlim(min(values) / 3, max(values) * 5)  # space for the words beside the longest bar
    panels[0].set_yticks(range(len(every)), [method_title(method) for method in every])
    panels[0].set_ylim(len(every) - 0.5, -0.5)
    figure.supxlabel("seconds per epoch (logarithmic)", fontsize=9, color=INK)
    return Drawing(
        "times",
        figure,
        f"Bars of the seconds per epoch. {'; '.join(summary)}.",
        "Seconds per epoch of fine-tuning, mean over the runs with its standard error; beside each bar what it is of "
        "Vanilla's.",
    )


Point = tuple[float, float, bool]  # clean, biased, whether it was chosen


def draw_scatter(subjects: Subjects) -> Drawing | None:
    """Draw every strength as a point, means over seeds, the chosen ones large; ideal is the upper right corner."""
    name = accuracy_name(row for rows in subjects.values() for row in final_rows(rows))
    points = {key: accuracy_points(rows, name) for key, rows in subjects.items()} if name else {}
    points = {key: found for key, found in points.items() if found}
    if not name or not points:
        return None
    titles = panel_titles(points)
    figure, panels = panel_grid(points, height=3.0)
    for axes, (key, found) in zip(panels, points.items()):
        axes.axline((0.5, 0.5), slope=1, color=FAINT, linewidth=1.2, zorder=0)
        for variant, path in found.items():
            colour, marker = style_of(variant.method)
            others = [(clean, biased) for clean, biased, is_chosen in path if not is_chosen]
            taken = [(clean, biased) for clean, biased, is_chosen in path if is_chosen]
            if others:
                axes.plot(*zip(*others), marker, color=colour, alpha=0.45, markersize=4.5, mew=0)
            if taken:
                axes.plot(*zip(*taken), marker, color=colour, markersize=9, mec="white", label=variant.title(found))
        axes.set_title(titles[key], fontsize=9, color=INK)
    show_fine_percent(panels[0].xaxis, panels[0].yaxis)
    figure.supxlabel(f"{words(name)}, without the artifact", fontsize=9, color=INK)
    figure.supylabel(f"{words(name)}, with the artifact", fontsize=9, color=INK)
    add_legend(figure, panels)
    count = sum(len(path) for found in points.values() for path in found.values())
    return Drawing(
        "scatter",
        figure,
        f"Scatter of {count} models: {words(name).lower()} with the artifact against that without, for "
        f"{', '.join(titles.values())}.",
        "All strengths on the test images; large marks are the chosen ones. On the grey line the artifact costs "
        "nothing; up and to the right is better.",
    )


def accuracy_points(rows: Sequence[Row], name: str) -> dict[Variant, list[Point]]:
    """Return (clean, biased, chosen) of every variant and strength, means over seeds; those not finite are left out."""
    final = [row for row in final_rows(rows) if not row.method.startswith("cav:")]
    means = average(final, lambda row: (unseeded(row), row.strength, row.metric))
    chosen = {(unseeded(row), row.strength) for row in final if row.chosen}
    found: dict[Variant, list[Point]] = {}
    for (variant, strength, metric), clean in means.items():
        biased = means.get((variant, strength, f"{name}_biased"))
        if metric == f"{name}_clean" and biased and math.isfinite(clean.value + biased.value):
            found.setdefault(variant, []).append((clean.value, biased.value, (variant, strength) in chosen))
    order = drawn_order()
    return dict(sorted(found.items(), key=lambda i: order.index(i[0].method) if i[0].method in order else len(order)))


_MOST_PAIRS = 4

_UNSEEN_BITS = 3  # a change of so many low bits cannot be seen


def draw_biases(
    images: Mapping[str, tuple[np.ndarray, np.ndarray]], *, in_scenes: Collection[str] = ()
) -> Drawing | None:
    """Draw the data-bias overview: a row per bias, each image beside its biased counterpart.

    Args:
        images: by the bias's name the clean and the biased images, uint8 (n, height, width, 1 or 3) each.
        in_scenes: natural biases: their biased images are other images.
    """
    images = {name: pair for name, pair in images.items() if min(map(len, pair))}
    if not images:
        return None
    pairs = min(_MOST_PAIRS, max(min(map(len, pair)) for pair in images.values()))
    figure, grid = image_grid(len(images), 2 * pairs)
    for row, (name, (clean, biased)) in enumerate(images.items()):
        for pair in range(pairs):
            left, right = grid[row, 2 * pair : 2 * pair + 2]
            if pair >= min(len(clean), len(biased)):
                left.axis("off")
                right.axis("off")
                continue
            show_image(left, clean[pair], title="clean" if row == 0 else "")
            show_image(right, biased[pair], title="biased" if row == 0 else "")
        name_row(grid[row, 0], name)
    return Drawing(
        "biases",
        figure,
        f"Pairs of images without and with the artifact, for {', '.join(images)}.",
        _caption(images, in_scenes),
    )


def _caption(names: Iterable[str], in_scenes: Collection[str]) -> str:
    put_in = [name for name in names if name not in in_scenes]
    others = [name for name in names if name in in_scenes]
    apart = "images without the artifact, and to the right of each another one that has it"
    if not others:
        return "The biases: each image without the artifact, and to its right with it."
    if not put_in:
        return f"The biases: {apart}."
    return f"The biases: each image without the artifact, and to its right with it; for {', '.join(others)}, {apart}."


def draw_hidden_bits(clean: np.ndarray, attacked: np.ndarray, *, bits: int) -> Drawing | None:
    """Draw images without and with a message in their lowest bits, and those bits alone.

    Args:
        clean: uint8 (n, height, width, 1 or 3).
        attacked: the same images with the message.
        bits: how many of the lowest bits are shown, stretched to the full range.
    """
    if not 1 <= bits <= 8:
        raise OptionError(f"A pixel has 1 to 8 bits to show, not {bits}.")
    n = min(len(clean), len(attacked), _MOST_IMAGES)
    if n == 0:
        return None
    figure, grid = image_grid(n, 4, side=2.0)
    word = "bit" if bits == 1 else f"{bits} bits"
    heads = ("clean", "attacked", f"last {word}, clean", f"last {word}, attacked")
    for row in range(n):
        shown = (clean[row], attacked[row], lowest_bits(clean[row], bits), lowest_bits(attacked[row], bits))
        for axes, head, image in zip(grid[row], heads, shown):
            show_image(axes, image, title=head if row == 0 else "")
    seen = "The attack is all but invisible; t" if bits <= _UNSEEN_BITS else "T"
    return Drawing(
        "lsb",
        figure,
        f"{n} images without and with a hidden message, and their last {word}.",
        f"{seen}he last {word}, stretched to the full range, show the message. All letters a to z begin with the same "
        "three bits, hence the stripes where the width is a multiple of 8.",
    )


def lowest_bits(image: np.ndarray, bits: int) -> np.ndarray:
    """Return the lowest bits of every value, stretched from 0 to 255."""
    most = (1 << bits) - 1
    table: np.ndarray = np.rint(np.arange(most + 1) * (255.0 / most)).astype(np.uint8)
    shown: np.ndarray = table[image & np.uint8(most)]
    return shown


def draw_extremes(alignment: np.ndarray, image: Callable[[int], np.ndarray], *, each: int = 6) -> Drawing | None:
    """Draw the best and the worst aligned samples with their s above; no sample stands in both rows.

    Args:
        alignment: s of every sample; NaN where the artifact changed nothing, which has no rank.
        image: from a sample's place in ``alignment`` to its pixels, uint8 (height, width, 1 or 3).
        each: how many of either end.
    """
    ranked = np.argsort(-alignment, kind="stable")[: int(np.isfinite(alignment).sum())]  # NaN sort last
    each = min(each, len(ranked) // 2)
    if each == 0:
        return None
    ends = {"best": ranked[:each], "worst": ranked[::-1][:each]}
    figure, grid = image_grid(2, each, extra=0.25)
    for axes_row, (name, samples) in zip(grid, ends.items()):
        for axes, sample in zip(axes_row, samples):
            show_image(axes, image(int(sample)), title=f"s = {alignment[sample]:.2f}")
        name_row(axes_row[0], f"{name} aligned")
    summary = {name: ", ".join(f"{alignment[sample]:.2f}" for sample in samples) for name, samples in ends.items()}
    return Drawing(
        "extremes",
        figure,
        f"Best aligned samples, s of {summary['best']}; worst aligned samples, s of {summary['worst']}.",
        "Samples whose activations change most and least along the CAV when the artifact is inserted: the cosine s "
        "stands above each.",
    )
