"""Figures of the paper's experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import MaxNLocator

from hansfree.corrections import Correction
from hansfree.data import to_rgb
from hansfree.evaluation import CLEAN_TRAINED, FIRST, ORIGINAL, HeatmapSet, Row, Variant, method_title
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
    new_figure,
    quieten,
    show_percent,
    style_of,
)
from hansfree.report.images import common_limit
from hansfree_paper.aggregate import GROUPS, Average, Finding, SubjectKey, average, change_titles, unseeded
from hansfree_paper.tables import spread

T = TypeVar("T")
Curve = dict[float, float]
Findings = Sequence[Finding]

_SETS = {"biased": "with the artifact", "clean": "without"}
_MOST_COLUMNS = 3
_SINGLE = 5.0  # inches: the width of a panel that stands alone
_MARGIN = 0.35  # inches: for the names of rows and columns of images
_MOST_IMAGES = 4  # of a subject
_MOST_STRENGTHS = 7  # more lines are indistinguishable


# Parts of figures


def panel_titles(keys: Iterable[SubjectKey]) -> dict[SubjectKey, str]:
    """Return what distinguishes the subjects; of a single one, everything."""
    keys = list(keys)
    fields = [name for name in ("model", "artifact", "data") if len({getattr(key, name) for key in keys}) > 1]
    return {key: " · ".join(getattr(key, name) for name in fields) if fields else key.title for key in keys}


def panel_grid(keys: Collection[SubjectKey], *, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """Return a titled panel per subject; all share their scales, and one alone is not stretched over the page.

    A row holds the biases of one model where they are four at most and every model has as many.
    """
    per_model = set(Counter(key.model for key in keys).values())
    n = len(keys)
    columns = per_model.pop() if len(per_model) == 1 else _MOST_COLUMNS
    columns = min(n, columns if 1 < columns <= 4 else _MOST_COLUMNS)
    figure = new_figure(width=_SINGLE if n == 1 else WIDTH, height=height * math.ceil(n / columns) + 0.4)
    grid = figure.subplots(math.ceil(n / columns), columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, title in zip(grid, panel_titles(keys).values()):
        quieten(axes)
        _title(axes, title)
    for place, axes in enumerate(grid[n:], start=n):
        axes.remove()
        grid[place - columns].tick_params(labelbottom=True)  # now the lowest panel of its column
    return figure, list(grid[:n])


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


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=9, color=INK)


def _name_axes(figure: Figure, *, x: str = "", y: str = "") -> None:
    if x:
        figure.supxlabel(x, fontsize=9, color=INK)
    if y:
        figure.supylabel(y, fontsize=9, color=INK)


def _name_bars(panels: Sequence[Axes], names: Sequence[str]) -> None:
    """Write words under the bars 0, 1, ...; slanted where panels are narrow."""
    is_narrow = len(panels) > _MOST_COLUMNS
    for axes in panels:
        axes.set_xticks(range(len(names)), names, fontsize=8)
        for label in axes.get_xticklabels():
            label.set(rotation=30 if is_narrow else 0, ha="right" if is_narrow else "center")
        axes.grid(axis="x", visible=False)


def _name_lines(panels: Sequence[Axes], names: Sequence[str]) -> None:
    """Write words beside the horizontal bars 0, 1, ..., the first above."""
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    for axes in panels:
        axes.grid(axis="y", visible=False)


def _annotate(axes: Axes, text: str, place: tuple[float, float], offset: tuple[int, int], **align: Any) -> None:
    axes.annotate(text, place, xytext=offset, textcoords="offset points", fontsize=8, color=INK, **align)


def _by_subject(findings: Findings, read: Callable[[Finding], T]) -> dict[SubjectKey, T]:
    """Return what is read of every subject that has any of it."""
    return {finding.key: found for finding in findings if (found := read(finding))}


def _names(found: Iterable[Iterable[T]]) -> list[T]:
    """Return the names in all subjects, each once."""
    return list(dict.fromkeys(name for names in found for name in names))


def _accuracy(rows: Iterable[Row]) -> str | None:
    """Return the accuracy that the rows have both without and with the artifact; the paper plots the plain one."""
    present = {row.metric for row in rows}
    names = ("accuracy", "balanced_accuracy")
    return next((name for name in names if {f"{name}_clean", f"{name}_biased"} <= present), None)


def _words(metric: str | None) -> str:
    return (metric or "").replace("_", " ").capitalize()


# Bars


def _draw_bars(
    axes: Axes,
    means: Mapping[str, Average],
    names: Sequence[str],
    width: float = 0.65,
    *,
    offset: float = 0.0,
    unit: float = 1.0,
    is_horizontal: bool = False,
    **style: Any,
) -> None:
    """Draw a bar with its standard error at the place that each name has on the axis."""
    draw, error = (axes.barh, "xerr") if is_horizontal else (axes.bar, "yerr")
    places = [names.index(name) + offset for name in means]
    errors: dict[str, Any] = {error: [unit * mean.error for mean in means.values()]}
    draw(places, [unit * mean.value for mean in means.values()], width, ecolor=INK, **errors, **style)


def draw_alignments(findings: Findings) -> Drawing | None:
    """Draw bars of both alignments with their errors; subjects without CAV scores have no panel."""
    # hatches are distinct in greyscale; the offset is from the CAV's name
    bars: dict[str, dict[str, Any]] = {
        "alignment_sample": {"label": "s, per image", "color": BLUE, "offset": -0.2},
        "alignment_mean": {
            "label": "s\N{COMBINING MACRON}, of the mean", "color": ORANGE, "hatch": "///", "offset": 0.2,
        },
    }  # fmt: skip
    scores = _by_subject(findings, lambda finding: {name: finding.cavs(name) for name in bars if finding.cavs(name)})
    if not scores:
        return None
    names = _names(means for found in scores.values() for means in found.values())
    figure, panels = panel_grid(scores)
    for axes, found in zip(panels, scores.values()):
        for metric, style in bars.items():
            _draw_bars(axes, found.get(metric, {}), names, 0.38, ec="white", **style)
        axes.axhline(0, color=INK, linewidth=0.8)
    _name_axes(figure, y="cosine with the true change")
    panels[0].set_ylim(top=1.05)
    _name_bars(panels, names)
    add_legend(figure, panels)
    summary = "; ".join(
        f"{title}: " + ", ".join(f"{name} {mean.value:.2f}" for name, mean in scores[key]["alignment_mean"].items())
        for key, title in panel_titles(scores).items()
    )
    return Drawing(
        "alignment",
        figure,
        f"Bars of the alignment of each CAV. Of the mean change: {summary}.",
        "Cosine between each CAV and what inserting the artifact does to the activations (1 is perfect). Lines: one "
        "standard error.",
    )


def draw_cav_types(findings: Findings) -> Drawing | None:
    """Draw bars of the accuracy with the artifact per CAV type; a dashed line is Vanilla's."""
    name = _accuracy(row for finding in findings for row in finding.rows)
    bars: dict[SubjectKey, dict[str, Average]] = {}
    vanilla: dict[SubjectKey, float] = {}
    for finding in findings:
        for variant, scores in finding.chosen.items():
            mean = scores.get(f"{name}_biased")
            if mean is None or not math.isfinite(mean.value):
                continue
            if variant.method == FIRST and variant.cav is not None:
                bars.setdefault(finding.key, {}).setdefault(variant.cav, mean)
            elif variant.method == "vanilla":
                vanilla[finding.key] = mean.value
    if not name or not bars:
        return None
    names = _names(bars.values())
    figure, panels = panel_grid(bars, height=2.6)
    summary = []
    for axes, (key, title) in zip(panels, panel_titles(bars).items()):
        _draw_bars(axes, bars[key], names, color=style_of(FIRST)[0])
        for cav, mean in bars[key].items():
            _annotate(axes, f"{100 * mean.value:.0f}", (names.index(cav), mean.value + mean.error), (0, 2), ha="center")
            summary.append(f"{title}, {cav}: {100 * mean.value:.1f} %")
        if key in vanilla:
            axes.axhline(vanilla[key], color=INK, linestyle="--", linewidth=1.2, label="Vanilla")
    show_percent(panels[0].yaxis)
    _name_axes(figure, y=f"{_words(name)}, with the artifact")
    _name_bars(panels, names)
    top = max(mean.value + mean.error for found in bars.values() for mean in found.values())
    panels[0].set_ylim(0, top + 0.1)  # space for the numbers
    add_legend(figure, panels)
    return Drawing(
        "cav-types",
        figure,
        f"Bars of {_words(name).lower()} with the artifact after correction along each CAV. {'; '.join(summary)}.",
        "RR-ClArC along different CAVs, each at the strength chosen for it; the dashed line is Vanilla. Lines: one "
        "standard error.",
    )


def draw_rises(findings: Findings) -> Drawing | None:
    """Draw bars of how much each selected class's logit rises under the artifact, a panel per subject."""
    rises = _by_subject(findings, lambda finding: finding.notes.get("rises", {}))
    if not rises:
        return None
    most = max(map(len, rises.values()))
    figure = new_figure(width=_SINGLE if len(rises) == 1 else WIDTH, height=0.9 + 0.22 * most)
    summary = []
    for axes, (key, found) in zip(figure.subplots(1, len(rises), squeeze=False)[0], rises.items()):
        quieten(axes)
        colours = [VERMILION] * (len(found) - 2) + [ORANGE, "#999999"]
        axes.barh(range(len(found)), list(found.values()), 0.65, color=colours)
        axes.axvline(0, color=INK, linewidth=0.8)
        _title(axes, panel_titles(rises)[key])
        _name_lines([axes], list(found))
        summary += [f"{key.title}, {name}: {rise:+.2f}" for name, rise in found.items()]
    _name_axes(figure, x="rise of the mean logit")
    return Drawing(
        "rises",
        figure,
        f"Bars of the rise of the mean logit under the artifact. {'; '.join(summary)}.",
        "By how much the mean logit of a class rises in the unpoisoned model when the artifact is inserted into the "
        "test images: the selected classes, the biased one, and the mean of all.",
    )


def draw_changes(findings: Findings) -> Drawing | None:
    """Draw bars of the change of accuracy against Vanilla with their errors, a panel per subject."""
    changes: dict[SubjectKey, dict[str, dict[str, Average]]] = {}  # group -> title of the method -> change
    for finding in findings:
        titles = change_titles(finding.changes, finding.facts.class_names)
        for variant, means in finding.changes.items():
            for group, mean in means.items():
                changes.setdefault(finding.key, {}).setdefault(group, {})[titles[variant]] = mean
    if not changes:
        return None
    every = _names(means for found in changes.values() for means in found.values())
    styles = dict(zip(GROUPS, ((VERMILION, "", -0.26), (SKY, "///", 0.0), ("#999999", "...", 0.26))))
    figure, panels = panel_grid(changes, height=0.9 + 0.55 * len(every))
    summary = []
    for axes, (key, title) in zip(panels, panel_titles(changes).items()):
        for group, (colour, hatch, offset) in styles.items():
            means = changes[key].get(group, {})
            style = {"color": colour, "hatch": hatch, "ec": "white", "label": f"{group} classes"}
            _draw_bars(axes, means, every, 0.26, offset=offset, unit=100, is_horizontal=True, **style)
            summary += [f"{title}, {name}, {group}: {100 * mean.value:+.1f}" for name, mean in means.items()]
        axes.axvline(0, color=INK, linewidth=0.8)
    _name_lines(panels, every)
    _name_axes(figure, x="change of clean accuracy against Vanilla, points")
    add_legend(figure, panels)
    return Drawing(
        "class-specific",
        figure,
        f"Bars of the change of accuracy against Vanilla in points. {'; '.join(summary)}.",
        "Change of the accuracy on clean test images against Vanilla: on the classes that react most to the artifact, "
        "on as many others, and on all. Lines: one standard error.",
    )


def draw_times(findings: Findings) -> Drawing | None:
    """Draw bars of the seconds per epoch on a logarithmic axis, with what they are of Vanilla's beside them."""
    times = _by_subject(findings, Finding.seconds)
    if not times:
        return None
    every = _names(times.values())
    figure, panels = panel_grid(times, height=0.9 + 0.32 * len(every))
    summary = []
    for axes, (key, title) in zip(panels, panel_titles(times).items()):
        vanilla = times[key].get("vanilla")
        _draw_bars(axes, times[key], every, is_horizontal=True, color=[style_of(method)[0] for method in times[key]])
        for method, mean in times[key].items():
            share = f"{100 * mean.value / vanilla.value:.0f} %" if vanilla else f"{mean.value:.3g} s"
            _annotate(axes, share, (mean.value + mean.error, every.index(method)), (3, 0), va="center")
            summary.append(f"{title}, {method_title(method)}: {mean.value:.3g} s")
        axes.set_xscale("log")
    values = [mean.value for found in times.values() for mean in found.values()]
    panels[0].set_xlim(min(values) / 3, max(values) * 5)  # space for the words beside the longest bar
    _name_lines(panels, list(map(method_title, every)))
    _name_axes(figure, x="seconds per epoch (logarithmic)")
    return Drawing(
        "times",
        figure,
        f"Bars of the seconds per epoch. {'; '.join(summary)}.",
        "Seconds per epoch of fine-tuning with the pass through the trunk, mean over the runs with its standard error; "
        "beside each bar what it is of Vanilla's.",
    )


# Curves and points


def _curves(rows: Iterable[Row], name: str | None, *by: str) -> dict[tuple[Any, ...], Curve]:
    """Return accuracy curves over the last of the fields, by the others and the set; means over seeds, finite only."""
    parts = {f"{name}_{part}": part for part in _SETS}
    # a strength of 0 has no place on a logarithmic axis
    wanted = [row for row in rows if row.method == FIRST and row.metric in parts and row.strength]
    means = average(wanted, lambda row: (*(getattr(row, f) for f in by[:-1]), parts[row.metric], getattr(row, by[-1])))
    curves: dict[tuple[Any, ...], Curve] = {}
    for (*line, x), mean in sorted(means.items(), key=lambda item: item[0][-1]):
        if math.isfinite(mean.value):
            curves.setdefault(tuple(line), {})[float(x)] = mean.value
    return curves


def _draw_curve(axes: Axes, curve: Curve, line: str = "-", *, color: Any, marker: str, **style: Any) -> None:
    axes.plot(list(curve), list(curve.values()), line, color=color, marker=marker, markersize=4, **style)


def _line_grid(rows: int, columns: int, *, height: float) -> tuple[Figure, np.ndarray]:
    figure = new_figure(width=_SINGLE if columns == 1 else WIDTH, height=height)
    grid = figure.subplots(rows, columns, sharex=True, sharey="row", squeeze=False)
    for axes in grid.flat:
        quieten(axes)
    return figure, grid


def _finish_lines(figure: Figure, grid: np.ndarray, name: str, *, x: str) -> None:
    """Name the axes of a grid whose rows are, in turns, with and without the artifact."""
    for place, row in enumerate(grid):
        row[0].set_ylabel(f"{_words(name)},\n{list(_SETS.values())[place % 2]}", fontsize=9, color=INK)
        show_percent(row[0].yaxis)
    _name_axes(figure, x=x)
    add_legend(figure, list(grid.flat))


@dataclass(frozen=True, eq=False)
class StrengthMaps:
    """One image under several strengths."""

    image: np.ndarray  # uint8 (height, width, 1 or 3), with the artifact
    mask: np.ndarray  # bool (height, width)
    relevance: Mapping[float, np.ndarray]  # strength -> (height, width)


def draw_strength_curves(
    findings: Findings, *, maps: Mapping[SubjectKey, StrengthMaps] | None = None
) -> Drawing | None:
    """Draw biased and clean accuracy over the strength, a row per subject, the heatmaps of some strengths below it."""
    maps = maps or {}
    name = _accuracy(row for finding in findings for row in finding.tested)
    found = {finding.key: (finding, _first_curves(finding, name)) for finding in findings}
    found = {key: pair for key, pair in found.items() if pair[1]}
    if not name or not found:
        return None
    heights = [2.4 + (1.6 if key in maps else 0.0) for key in found]
    figure = new_figure(width=WIDTH * 0.85, height=sum(heights) + 0.3)
    outer = figure.add_gridspec(len(found), 1, height_ratios=heights)
    titles = panel_titles(found)
    drawn, summary = [], []
    colour, marker = style_of(FIRST)
    for place, (key, (finding, curves)) in enumerate(found.items()):
        shown, biased = maps.get(key), curves.get(("biased",), {})
        axes = _add_strip(figure, outer[place, 0], shown) if shown else figure.add_subplot(outer[place, 0])
        quieten(axes)
        _draw_curve(axes, biased, color=colour, marker=marker, label="with artifact")
        clean = curves.get(("clean",), {})
        axes.plot(list(clean), list(clean.values()), "--", color=INK, linewidth=1.2, label="without")
        axes.set_xscale("log")
        show_percent(axes.yaxis)
        vanilla = finding.by_method.get("vanilla", {})
        for part, line, label in (("biased", "-", "Vanilla, with artifact"), ("clean", "--", "Vanilla, without")):
            mean = vanilla.get(f"{name}_{part}")
            if mean is not None and math.isfinite(mean.value):
                grey = style_of("vanilla")[0]
                axes.axhline(mean.value, linestyle=line, color=grey, linewidth=1.2, zorder=1, label=label)
        for strength in shown.relevance if shown else ():
            axes.axvline(strength, color=INK, linewidth=0.8, linestyle=":", zorder=0)
        chosen = next((r.strength for r in finding.tested if r.method == FIRST and r.chosen and r.strength), None)
        if chosen in biased:
            axes.plot(chosen, biased[chosen], marker=marker, markersize=10, color=colour, mec="white")
        if biased:
            best = max(biased, key=lambda strength: biased[strength])
            summary.append(f"{titles[key]}: best {biased[best]:.0%} at {best:g}")
        _title(axes, titles[key])
        axes.set_xlabel("strength", fontsize=9, color=INK)
        axes.set_ylabel(_words(name), fontsize=9, color=INK)
        drawn.append(axes)
    add_legend(figure, drawn)
    strips = " Heatmaps (LRP of the biased class, one colour scale) at the dotted strengths." if maps else ""
    return Drawing(
        "strength",
        figure,
        f"Curves of {_words(name).lower()} over the strength, with and without the artifact. With it: "
        f"{'; '.join(summary)}.",
        f"{_words(name)} on the test images over the strength; the large mark is the chosen one.{strips}",
    )


def _first_curves(finding: Finding, name: str | None) -> dict[tuple[Any, ...], Curve]:
    """Return RR-ClArC's curves over the strength, of its first variant."""
    rows = [row for row in finding.tested if row.method == FIRST and row.strength]
    return _curves([row for row in rows if unseeded(row) == unseeded(rows[0])], name, "strength")


def _add_strip(figure: Figure, spec: SubplotSpec, shown: StrengthMaps) -> Axes:
    """Fill the lower part with the input and the heatmaps from weak to strong; return the axes for the curve."""
    strengths = sorted(shown.relevance)
    inner = spec.subgridspec(2, 1 + len(strengths), height_ratios=(2.4, 1.4))
    limit = common_limit(shown.relevance.values())
    _show_image(figure.add_subplot(inner[1, 0]), shown.image, title="input", mask=shown.mask)
    for column, strength in enumerate(strengths, start=1):
        axes = figure.add_subplot(inner[1, column])
        _show_relevance(axes, shown.relevance[strength], limit)
        _show_image(axes, None, title=f"{strength:g}", mask=shown.mask)
    return figure.add_subplot(inner[0, :])


def draw_epochs(findings: Findings) -> Drawing | None:
    """Draw biased (above) and clean accuracy over the epochs, a column per subject, weak strengths dark, strong bright.

    Of many strengths, a few that are evenly spread are shown.
    """
    rows = {finding: [row for row in finding.rows if row.epoch is not None] for finding in findings}
    name = _accuracy(row for found in rows.values() for row in found if row.method == FIRST)
    lines = _by_subject(findings, lambda finding: _curves(rows[finding], name, "strength", "epoch"))
    if not name or not lines:
        return None
    picked = spread((strength for found in lines.values() for strength, _ in found), _MOST_STRENGTHS)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(picked)))
    figure, grid = _line_grid(2, len(lines), height=5.2)
    for column, (key, title) in zip(grid.T, panel_titles(lines).items()):
        for axes, part in zip(column, _SETS):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for strength, colour, marker in zip(picked, colours, "osD^vPX"):
                if curve := lines[key].get((strength, part)):
                    _draw_curve(axes, curve, color=colour, marker=marker, label=f"strength {strength:g}")
        _title(column[0], title)
    _finish_lines(figure, grid, name, x="epoch")
    return Drawing(
        "epochs",
        figure,
        f"Curves of {_words(name).lower()} on test images over the epochs for the strengths "
        f"{', '.join(f'{strength:g}' for strength in picked)}.",
        f"{_words(name)} on the test images after every epoch of fine-tuning, for several strengths.",
    )


_SAME = "expected"  # all but the mean of "random": drawn over it, dashed


def draw_targets(findings: Findings) -> Drawing | None:
    """Draw two rows per subject, with and without the artifact; targets keep their colour in all panels."""
    name = _accuracy(row for finding in findings for row in finding.tested)
    lines = _by_subject(
        findings,
        lambda finding: _curves([r for r in finding.tested if r.target and r.norm], name, "target", "norm", "strength"),
    )
    if not name or not lines:
        return None
    targets = _names([target for target, *_ in found] for found in lines.values())
    norms = _names([norm for _, norm, _ in found] for found in lines.values())
    figure, grid = _line_grid(2 * len(lines), len(norms), height=4.2 * len(lines) + 0.6)
    for place, (key, title) in enumerate(panel_titles(lines).items()):
        for row, part in zip(grid[2 * place :], _SETS):
            for axes, norm in zip(row, norms):
                axes.set_xscale("log")
                for target, (colour, marker) in zip(targets, KINDS):
                    if curve := lines[key].get((target, norm, part)):
                        dashed = {"line": "--", "zorder": 3} if target == _SAME else {"zorder": 2}
                        _draw_curve(axes, curve, color=colour, marker=marker, label=target, **dashed)
                # the subject's name is wider than a panel: it stands above the middle one alone
                head = f"{title}\n{norm}" if norm == norms[len(norms) // 2] else norm
                _title(axes, head if part == "biased" else "")
    _finish_lines(figure, grid, name, x="strength")
    note = f"; {_SAME} is dashed, for it often lies on another line" if _SAME in targets else ""
    return Drawing(
        "targets",
        figure,
        f"Curves of {_words(name).lower()} over the strength for the targets {', '.join(targets)} and the norms "
        f"{', '.join(norms)}.",
        f"{_words(name)} on the test images over the strength, for each gradient target (colour) and each norm "
        f"(column){note}.",
    )


def draw_scatter(findings: Findings) -> Drawing | None:
    """Draw every strength as a point, means over seeds, the chosen ones large; ideal is the upper right corner."""
    name = _accuracy(row for finding in findings for row in finding.tested)
    points = _by_subject(findings, lambda finding: _points(finding, name))
    if not points:
        return None
    figure, panels = panel_grid(points, height=3.0)
    for axes, found in zip(panels, points.values()):
        axes.axline((0.5, 0.5), slope=1, color=FAINT, linewidth=1.2, zorder=0)
        for variant, path in found.items():
            colour, marker = style_of(variant.method)
            others = [point for point, is_chosen in path if not is_chosen]
            taken = [point for point, is_chosen in path if is_chosen]
            if others:
                axes.plot(*zip(*others), marker, color=colour, alpha=0.45, markersize=4.5, mew=0)
            if taken:
                axes.plot(*zip(*taken), marker, color=colour, markersize=9, mec="white", label=variant.title(found))
    show_percent(panels[0].xaxis, panels[0].yaxis)
    _name_axes(figure, x=f"{_words(name)}, without the artifact", y=f"{_words(name)}, with the artifact")
    add_legend(figure, panels)
    count = sum(len(path) for found in points.values() for path in found.values())
    return Drawing(
        "scatter",
        figure,
        f"Scatter of {count} models: {_words(name).lower()} with the artifact against that without, for "
        f"{', '.join(panel_titles(points).values())}.",
        "All strengths on the test images; large marks are the chosen ones. On the grey line the artifact costs "
        "nothing; up and to the right is better.",
    )


def _points(finding: Finding, name: str | None) -> dict[Variant, list[tuple[tuple[float, float], bool]]]:
    """Return (clean, biased) and whether it was chosen of every variant and strength, means over seeds, finite only."""
    means = average(finding.tested, lambda row: (unseeded(row), row.strength, row.metric))
    chosen = {(unseeded(row), row.strength) for row in finding.tested if row.chosen}
    found: dict[Variant, list[tuple[tuple[float, float], bool]]] = {}
    for (variant, strength, metric), clean in means.items():
        biased = means.get((variant, strength, f"{name}_biased"))
        if metric == f"{name}_clean" and biased and math.isfinite(clean.value + biased.value):
            found.setdefault(variant, []).append(((clean.value, biased.value), (variant, strength) in chosen))
    order = _drawn_order()
    return dict(sorted(found.items(), key=lambda i: order.index(i[0].method) if i[0].method in order else len(order)))


def _drawn_order() -> list[str]:
    """Return the registered methods and the references in the order in which figures show them."""
    return [ORIGINAL, *Correction.members(), CLEAN_TRAINED]


# Images


def _show_image(axes: Axes, image: np.ndarray | None, *, title: str = "", mask: np.ndarray | None = None) -> None:
    """Show pixels without ticks; the mask's outline is drawn unless it is empty or fills the image."""
    if image is not None:
        axes.imshow(to_rgb(image), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#BBBBBB")
    _title(axes, title)
    if mask is not None and mask.any() and not mask.all():
        axes.contour(mask.astype(float), levels=[0.5], colors=[GREEN], linewidths=1.0)


def _show_relevance(axes: Axes, relevance: np.ndarray, limit: float) -> None:
    """Show relevance in red and blue around 0."""
    if np.isfinite(relevance).all():
        axes.imshow(relevance, vmin=-limit, vmax=limit, cmap="RdBu_r", interpolation="nearest")
    else:
        axes.text(0.5, 0.5, "not finite", ha="center", va="center", color=ALARM, transform=axes.transAxes, fontsize=8)


def _image_grid(
    rows: int, columns: int, *, side: float | None = None, extra: float = 0.0
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure and its axes for square images of a side in inches, with extra space above for words."""
    side = side or (WIDTH - _MARGIN) / max(columns, 5)
    figure = new_figure(width=side * columns + _MARGIN, height=(side + extra) * rows + _MARGIN)
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def _name_row(axes: Axes, text: str) -> None:
    """Write a row's name to the left of its first image, each word in a line and small enough for the image's side."""
    lines = text.split(" · ")
    size = 9.0 * min(1.0, 14 / max(1, *map(len, lines)))  # 14 letters of 9 points fit beside an image
    axes.set_ylabel("\n".join(lines), fontsize=size, color=INK)


Sets = Mapping[SubjectKey, HeatmapSet]


def draw_method_heatmaps(sets: Sets) -> Drawing | None:
    """Draw the heatmap panel: input, then every method in the paper's order; an image's row has one colour scale."""
    every, order = _names(maps.relevance for maps in sets.values()), _drawn_order()
    methods = sorted(every, key=lambda name: (order.index(name) if name in order else len(order), name))
    figure = _heatmaps(sets, {name: method_title(name) for name in methods}, is_scale_shared=True)
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
    names = _names(maps.relevance for maps in sets.values())
    figure = _heatmaps(sets, {name: name for name in names}, is_scale_shared=False)
    if figure is None:
        return None
    return Drawing(
        "localisation",
        figure,
        f"LRP heatmaps of the score along the CAVs {', '.join(names)}.",
        "Where the score along each CAV comes from (LRP), each heatmap on its own colour scale; the green outline is "
        "the artifact where it has a place.",
    )


def _heatmaps(sets: Sets, columns: Mapping[str, str], *, is_scale_shared: bool) -> Figure | None:
    lines = [(key, i) for key, maps in sets.items() for i in range(min(len(maps.images), _MOST_IMAGES))]
    if not lines or not columns:
        return None
    names = panel_titles(sets)
    figure, grid = _image_grid(len(lines), 1 + len(columns))
    for row, (axes_row, (key, i)) in enumerate(zip(grid, lines)):
        maps = sets[key]
        shared = common_limit(found[i] for found in maps.relevance.values())
        _show_image(axes_row[0], maps.images[i], title="input" if row == 0 else "", mask=maps.masks[i])
        if i == 0:
            _name_row(axes_row[0], names[key])
        for axes, (name, title) in zip(axes_row[1:], columns.items()):
            if name in maps.relevance:
                relevance = maps.relevance[name][i]
                _show_relevance(axes, relevance, shared if is_scale_shared else common_limit([relevance]))
            else:
                axes.set_box_aspect(maps.masks[i].shape[0] / maps.masks[i].shape[1])
                axes.text(0.5, 0.5, "no model", ha="center", va="center", transform=axes.transAxes, fontsize=8)
            mask = maps.masks[i] if name in maps.relevance else None
            _show_image(axes, None, title=title if row == 0 else "", mask=mask)
    return figure


def draw_biases(
    images: Mapping[str, tuple[np.ndarray, np.ndarray]], *, natural: Collection[str] = ()
) -> Drawing | None:
    """Draw a row per bias, each image beside its biased counterpart; of natural ones these are other images."""
    images = {name: pair for name, pair in images.items() if min(map(len, pair))}
    if not images:
        return None
    pairs = min(_MOST_IMAGES, max(min(map(len, pair)) for pair in images.values()))
    figure, grid = _image_grid(len(images), 2 * pairs)
    for row, (name, shown) in enumerate(images.items()):
        for place, axes in enumerate(grid[row]):
            pair, side = divmod(place, 2)
            if pair < min(map(len, shown)):
                _show_image(axes, shown[side][pair], title=("clean", "biased")[side] if row == 0 else "")
            else:
                axes.axis("off")
        _name_row(grid[row][0], name)
    others = ", ".join(name for name in images if name in natural)
    apart = f"; for {others}, images without the artifact, and to the right of each another one that has it"
    return Drawing(
        "biases",
        figure,
        f"Pairs of images without and with the artifact, for {', '.join(images)}.",
        f"The biases: each image without the artifact, and to its right with it{apart if others else ''}.",
    )


def draw_hidden_bits(clean: np.ndarray, attacked: np.ndarray, *, bits: int) -> Drawing:
    """Draw images without and with a message in their lowest bits, and those bits alone, stretched."""
    n = min(len(clean), _MOST_IMAGES)
    figure, grid = _image_grid(n, 4, side=2.0)
    word = "bit" if bits == 1 else f"{bits} bits"
    heads = ("clean", "attacked", f"last {word}, clean", f"last {word}, attacked")
    for row in range(n):
        shown = (clean[row], attacked[row], lowest_bits(clean[row], bits), lowest_bits(attacked[row], bits))
        for axes, head, image in zip(grid[row], heads, shown):
            _show_image(axes, image, title=head if row == 0 else "")
    seen = "The attack is all but invisible; t" if bits <= 3 else "T"
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
    shown: np.ndarray = np.rint((image & np.uint8(most)) * (255.0 / most)).astype(np.uint8)
    return shown


_GALLERY_ROW = 8  # images, each beside its heatmap
_TILE = 56  # pixels


def draw_gallery(images: Sequence[np.ndarray], relevance: np.ndarray, *, cav: str, name: str) -> Drawing | None:
    """Draw many images, each with the heatmap of the score along a CAV to its right, on its own colour scale."""
    if not len(images):
        return None
    shades = matplotlib.colormaps["RdBu_r"]
    tiles = []
    for image, found in zip(images, relevance):
        values = np.nan_to_num(found) / (2 * (common_limit([found]) or 1)) + 0.5
        tiles += [_tile(to_rgb(image)), _tile((255 * shades(values)[..., :3]).astype(np.uint8))]
    rows = math.ceil(len(tiles) / (2 * _GALLERY_ROW))
    tiles += [np.full_like(tiles[0], 255)] * (2 * _GALLERY_ROW * rows - len(tiles))
    mosaic = np.concatenate([np.concatenate(tiles[i :: 2 * _GALLERY_ROW]) for i in range(2 * _GALLERY_ROW)], axis=1)
    figure = new_figure(width=WIDTH, height=WIDTH * mosaic.shape[0] / mosaic.shape[1])
    _show_image(figure.subplots(), mosaic)
    return Drawing(
        f"gallery-{cav}-{name}",
        figure,
        f"{len(images)} images with the artifact and the heatmaps of the score along the {cav}-CAV.",
        f"Random test images with the artifact, and to the right of each where its score along the {cav}-CAV comes "
        "from (LRP), each on its own colour scale.",
    )


def _tile(image: np.ndarray) -> np.ndarray:
    """Return the image in the size of a tile; the nearest pixels suffice in so small a picture."""
    rows, columns = (np.linspace(0, side - 1, _TILE).round().astype(int) for side in image.shape[:2])
    return image[np.ix_(rows, columns)]


def draw_extremes(
    alignment: np.ndarray, image: Callable[[int], np.ndarray], *, name: str, each: int = 6
) -> Drawing | None:
    """Draw the best and the worst aligned samples with their s above; one that is NaN has no rank."""
    ranked = np.argsort(-alignment, kind="stable")[: int(np.isfinite(alignment).sum())]  # NaN sort last
    each = min(each, len(ranked) // 2)
    if each == 0:
        return None
    ends = {"best": ranked[:each], "worst": ranked[::-1][:each]}
    figure, grid = _image_grid(2, each, extra=0.25)
    for axes_row, (end, samples) in zip(grid, ends.items()):
        for axes, sample in zip(axes_row, samples):
            _show_image(axes, image(int(sample)), title=f"s = {alignment[sample]:.2f}")
        _name_row(axes_row[0], f"{end} aligned")
    best, worst = (", ".join(f"{alignment[sample]:.2f}" for sample in samples) for samples in ends.values())
    return Drawing(
        name,
        figure,
        f"Best aligned samples, s of {best}; worst aligned samples, s of {worst}.",
        "Samples whose activations change most and least along the CAV when the artifact is inserted: the cosine s "
        "stands above each.",
    )
