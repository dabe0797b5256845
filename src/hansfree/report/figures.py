"""Figures of the report by matplotlib: strengths, alignment, diagnostics."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

from hansfree.cavs import CAV
from hansfree.cavs.diagnostics import TARGET, Diagnosis
from hansfree.corrections import Correction, split_name
from hansfree.evaluation import CLEAN_TRAINED, ORIGINAL, Results, Row, Variant
from hansfree.report.direction import describe_diagnosis
from hansfree.report.text import SENTENCES

# Okabe and Ito's palette: words apart with every common colour vision; markers or hatches say the same without colour.
ORANGE, PURPLE, GREEN, SKY = "#E69F00", "#CC79A7", "#009E73", "#56B4E9"

VERMILION, BLUE, YELLOW = "#D55E00", "#0072B2", "#F0E442"

# Several things of one kind, neither methods nor in an order.
KINDS = ((VERMILION, "o"), (BLUE, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"))

# Methods take colours in the order in which they are registered, the paper's first; as there are more markers than
# colours, the pairs differ for 56 methods.
_COLOURS = (ORANGE, PURPLE, GREEN, SKY, VERMILION, BLUE, YELLOW)

_MARKERS = ("s", "D", "^", "v", "o", "h", "p", "8")

# Along a further CAV a method keeps its colour, and the marker is the CAV's.
_CAV_MARKERS = ("<", ">", "d", "P", "X", "*")

_REFERENCES = {ORIGINAL: ("#000000", "X"), CLEAN_TRAINED: ("#777777", "P")}
OTHER_STYLE = (BLUE, "h")
INK, FAINT, ALARM = "#333333", "#DDDDDD", "#B00020"
WIDTH = 9.0  # inches; the page shows a figure at about 1000 px


def style_of(method: str) -> tuple[str, str]:
    """Return the colour and the marker of a method."""
    if method in _REFERENCES:
        return _REFERENCES[method]
    names, kinds, (own, cav) = list(Correction.members()), list(CAV.members()), split_name(method)
    if own not in names:
        return OTHER_STYLE
    place = names.index(own)
    marker = _MARKERS[place % len(_MARKERS)]
    if cav in kinds:
        marker = _CAV_MARKERS[kinds.index(cav) % len(_CAV_MARKERS)]
    return _COLOURS[place % len(_COLOURS)], marker


@dataclass(frozen=True)
class Drawing:
    """A figure with the words that stand for it where it cannot be seen, and those below it."""

    name: str
    figure: Figure
    alt: str
    caption: str


def new_figure(*, width: float = WIDTH, height: float) -> Figure:
    """Return an empty figure that draws to PNG without pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def quiet_axes(figure: Figure, *, rows: int = 1, columns: int = 1) -> list[Axes]:
    """Return panels, row after row, that share their y axis, with a faint grid and no box."""
    panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axes in panels:
        quieten(axes)
    return panels


def quieten(axes: Axes) -> None:
    """Give a panel its faint grid and take its box away."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def show_percent(*sides: Axis) -> None:
    """Write the ticks of shares in percent, at round numbers and with the digits that they need."""
    for side in sides:
        side.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10]))
        side.set_major_formatter(lambda share, _: f"{100 * share:.6g} %")


# label, colour, hatch (the bars are words apart in grey too), place beside the CAV's name
_ALIGNMENTS = {
    "alignment_sample": ("s, per image", BLUE, "", -0.19),
    "alignment_mean": ("s\N{COMBINING MACRON}, of the mean", ORANGE, "///", 0.19),
}


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
            error = row.spread
            axes.errorbar(row.value, place, xerr=error, ecolor=INK, elinewidth=1.4)
            axes.text(max(row.value, 0) + error + 0.01, place, f"{row.value:.2f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *(row.value - 0.02 for row in rows.values())), 1.08)
    axes.set_xlabel("cosine with the true change of the activations (1 is perfect)")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, labelcolor=INK)
    words = "; ".join(f"{name}, {_ALIGNMENTS[metric][0]}: {row.value:.2f}" for (name, metric), row in rows.items())
    return Drawing(
        "alignment", figure, f"Bars of the alignment of each CAV. {words}.", SENTENCES["captions"]["alignment"]
    )


_MOST_COLUMNS = 4  # panels side by side, so that their titles have room
_ACCURACIES = ("balanced_accuracy", "accuracy")  # the first that a run has
Pair = tuple[Row, Row]  # the same model without and with the artifact


def draw_strengths(results: Results) -> Drawing | None:
    """Draw accuracy with and without the artifact against the strength, one panel per method."""
    rows = paths_of(results)
    if rows is None:
        return None
    name, points = rows
    # a strength of 0 has no place on a logarithmic axis
    paths = {v: [(c, b) for c, b in pairs if c.strength is not None and c.strength > 0] for v, pairs in points.items()}
    paths = {variant: pairs for variant, pairs in paths.items() if len(pairs) > 1}
    if not paths:
        return None
    columns, n_rows = min(len(paths), _MOST_COLUMNS), math.ceil(len(paths) / _MOST_COLUMNS)
    figure = new_figure(height=3.0 * n_rows)
    panels = quiet_axes(figure, rows=n_rows, columns=columns)
    for axes, (variant, pairs) in zip(panels, paths.items()):
        colour, marker = style_of(variant.method)
        finite = [pair for pair in pairs if not any(map(results.has_diverged, pair))]
        strengths = [clean.strength or 0 for clean, _ in finite]
        axes.plot(strengths, [b.value for _, b in finite], "-", color=colour, marker=marker, markersize=4)
        axes.plot(strengths, [c.value for c, _ in finite], "--", color=colour, linewidth=1.2, alpha=0.8)
        for clean, biased in finite:
            if clean.chosen:
                axes.axvline(clean.strength or 0, color=INK, linewidth=1, linestyle=":", zorder=0)
                axes.plot(clean.strength or 0, biased.value, marker=marker, markersize=10, color=colour, mec="white")
        for strength in (c.strength or 0 for c, b in pairs if (c, b) not in finite):
            axes.plot(strength, 0.03, "x", color=ALARM, transform=axes.get_xaxis_transform(), clip_on=False)
        axes.set_xscale("log")
        axes.set_title(variant.title(paths).replace(" along ", "\nalong "), fontsize=10, color=INK)
        axes.set_xlabel("strength")
    for axes in panels[len(paths) :]:
        axes.remove()
    for axes in panels[::columns]:
        axes.set_ylabel(name)
    show_percent(panels[0].yaxis)
    words = "; ".join(
        f"{v.title(paths)}: {pairs[0][0].strength:.3g} to {pairs[-1][0].strength:.3g}" for v, pairs in paths.items()
    )
    return Drawing(
        "strengths",
        figure,
        f"Curves of {name.lower()} over the strength, test images. Strengths of {words}.",
        SENTENCES["captions"]["strengths"],
    )


def paths_of(results: Results) -> tuple[str, dict[Variant, list[Pair]]] | None:
    """Return the accuracy's name and, by variant, its pairs in the order of the strengths."""
    if results.is_one_sided:
        return None  # plain accuracy with the artifact would show the shortcut as the best of models
    for metric in _ACCURACIES:
        biased = {(Variant.of(row), row.strength): row for row in results.of_metric(f"{metric}_biased")}
        points: dict[Variant, list[Pair]] = {}
        for row in results.of_metric(f"{metric}_clean"):
            if (Variant.of(row), row.strength) in biased:
                points.setdefault(Variant.of(row), []).append((row, biased[Variant.of(row), row.strength]))
        for pairs in points.values():
            pairs.sort(key=lambda pair: pair[0].strength or 0)
        if points:
            order = [variant for variant in results.methods() if variant in points]
            return metric.replace("_", " ").capitalize(), {variant: points[variant] for variant in order}
    return None


_ARTIFACT, _CLEAN = VERMILION, BLUE  # hatched and plain, so that they differ in grey too
_BINS = 30
_DARK = 0.6  # cosine from which on a cell is too dark for black words


def draw_diagnosis(diagnosis: Diagnosis) -> Drawing:
    """Draw how the error falls with more images, how the solvers agree, and where unseen images lie."""
    figure = new_figure(width=WIDTH, height=3.4)
    curve, agreement, scores = figure.subplots(1, 3, width_ratios=[1.15, 1.0, 1.25])
    _draw_curve(curve, diagnosis)
    _draw_agreement(agreement, diagnosis)
    _draw_scores(scores, diagnosis)
    points = "; ".join(f"{point.n} images: {point.angle:.0f} degrees" for point in diagnosis.curve)
    n_wrong = len(diagnosis.suspect_labels)
    return Drawing(
        "diagnostics",
        figure,
        f"Expected error of the {diagnosis.cav} direction by number of artifact images ({points}); cosines between the "
        f"solvers' directions; histograms of held-out scores with {n_wrong} marks that look wrong. "
        f"{describe_diagnosis(diagnosis)}",
        SENTENCES["captions"]["diagnostics"],
    )


def _draw_curve(axes: Axes, diagnosis: Diagnosis) -> None:
    quieten(axes)
    n = np.array([point.n for point in diagnosis.curve], dtype=np.float64)
    angle = np.array([point.angle for point in diagnosis.curve])
    low, high = np.array([point.interval for point in diagnosis.curve]).T
    # The middle of skewed repeats need not hold the angle of their mean cosine.
    reach = np.clip([angle - low, high - angle], 0.0, None)
    axes.errorbar(n, angle, yerr=reach, fmt="o", color=_CLEAN, elinewidth=1.4, markersize=5, zorder=3)
    needed = diagnosis.finding("images_needed").value
    last = max(n[-1], min(needed or n[-1], 20 * n[-1]))
    axes.set_xscale("log")
    axes.set_xlim(0.8 * n[0], 1.25 * last)
    if needed is not None:
        places = np.geomspace(n[0], last, 100)
        law = np.degrees(np.arctan(np.tan(np.radians(TARGET)) * np.sqrt(needed / places)))
        axes.plot(places, law, color=INK, linewidth=1.0, linestyle="--")
    axes.axhline(TARGET, color=ALARM, linewidth=1.0)
    axes.text(
        0.98, TARGET + 1, f"{TARGET:.0f}°", ha="right", color=ALARM, fontsize=8, transform=axes.get_yaxis_transform()
    )
    axes.set_ylim(0, max(30.0, min(92.0, 1.08 * high.max())))
    ticks = [int(place) for place in n[:-2]] + [int(n[-1])]  # the halves' would touch its neighbours
    ticks += [round(last)] if last > 1.5 * n[-1] else []
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("artifact images", color=INK)
    axes.set_ylabel("expected error (degrees)", color=INK)
    axes.set_title("How many images?", fontsize=10, color=INK)


def _draw_agreement(axes: Axes, diagnosis: Diagnosis) -> None:
    names, cosines = diagnosis.agreement.names, np.array(diagnosis.agreement.cosines)
    axes.pcolormesh(cosines, vmin=-1, vmax=1, cmap="PuOr", edgecolors="white", linewidth=1)
    for row, column in np.ndindex(*cosines.shape):
        value = cosines[row, column]
        colour = "white" if abs(value) > _DARK else "#111111"
        axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    centres = np.arange(len(names)) + 0.5
    axes.set_xticks(centres, names, rotation=30, ha="right")
    axes.set_yticks(centres, names)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Solvers: cosines", fontsize=10, color=INK)


def _draw_scores(axes: Axes, diagnosis: Diagnosis) -> None:
    quieten(axes)
    scores, has_artifact = np.array(diagnosis.scores), np.array(diagnosis.has_artifact)
    edges = np.histogram_bin_edges(scores, bins=_BINS)
    kinds = (("clean", ~has_artifact, _CLEAN, ""), ("artifact", has_artifact, _ARTIFACT, "////"))
    for label, rows, colour, hatch in kinds:
        shares = np.full(int(rows.sum()), 1 / rows.sum())  # a few artifact images beside many clean ones must show
        axes.hist(
            scores[rows], edges.tolist(), weights=shares, color=colour, alpha=0.55, hatch=hatch, ec="white", label=label
        )
    top = axes.get_ylim()[1]
    for listed, colour, marker in ((False, _CLEAN, "v"), (True, _ARTIFACT, "^")):
        places = [mark.score for mark in diagnosis.suspect_labels if mark.has_artifact == listed]
        if places:
            label = f"listed {'with' if listed else 'without'} it, looks wrong"
            axes.scatter(places, [1.05 * top] * len(places), s=30, c=colour, marker=marker, ec=INK, label=label)
    axes.axvline(0, ymax=0.75, color=INK, linewidth=0.8, linestyle=":")  # the legend is above
    axes.set_ylim(0, 1.5 * top)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.legend(
        loc="upper center", fontsize=7, frameon=False, labelcolor=INK, ncols=2, columnspacing=1.0, handletextpad=0.5
    )
    axes.set_xlabel("held-out score (standard deviations)", color=INK)
    axes.set_ylabel("share of images", color=INK)
    found = diagnosis.finding("held_out_auc").value
    axes.set_title(f"Unseen images: AUC {found:.2f}", fontsize=10, color=INK)
