"""Plots of the report as SVG that lies in the page: trade-off, drops of classes, effect on each image."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hansfree.evaluation import ORIGINAL, Results, Variant, method_title
from hansfree.report.figures import (
    ALARM,
    BLUE,
    FAINT,
    GREEN,
    INK,
    VERMILION,
    Pair,
    new_figure,
    paths_of,
    quiet_axes,
    show_percent,
    style_of,
)
from hansfree.report.images import Cases, describe_change, picture_of
from hansfree.report.numbers import percent, write_points
from hansfree.report.text import SENTENCES

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_PIXELS = 110  # per inch, as the page shows a figure
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
# Colours that depend on the page being light or dark; the others are legible on both.
_THEME = {f"fill: {INK}": "fill: var(--ink)", f"stroke: {INK}": "stroke: var(--ink)"}
_THEME |= {f"stroke: {FAINT}": "stroke: var(--line)", "stroke: #ffffff": "stroke: var(--card)"}
_THEME |= {f"{kind}: {ALARM}": f"{kind}: var(--alarm)" for kind in ("fill", "stroke")}
_THEME |= {f"{kind}: #000000": f"{kind}: var(--ink)" for kind in ("fill", "stroke")}
_THEME = {light.lower(): dark for light, dark in _THEME.items()}


@dataclass(frozen=True)
class Plot:
    """A plot as SVG inside the page and as a file, with the words below it."""

    name: str
    svg: Markup
    file: str
    caption: str


def make_plot(
    figure: Figure,
    name: str,
    *,
    alt: str,
    caption: str = "",
    points: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Plot:
    """Return a figure as SVG; inside the page names are unique, colours follow the theme, and fonts are the page's.

    Args:
        points: Labels of the points of a collection, by its gid: report.js shows that of the point in focus.
    """
    file = _write_svg(figure, name)
    root = ElementTree.fromstring(file)
    for parent in root.iter():
        for child in [*parent]:
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for group in root.iter(f"{_SVG}g"):
        if group.get("id") in points:
            _make_focusable(group, points[str(group.get("id"))])
    if (first := root.find(f".//{_SVG}g[@class='point']")) is not None:
        first.set("tabindex", "0")  # one stop of the tab key
    used = {link[1:] for each in root.iter() if (link := each.get(_LINK, "")).startswith("#")}
    used |= {found for each in root.iter() for value in each.attrib.values() for found in _REFERENCE.findall(value)}
    for each in root.iter():
        each.tag = each.tag.removeprefix(_SVG)
        if (own := each.attrib.pop("id", None)) in used:
            each.set("id", f"{name}-{own}")
        if link := each.attrib.pop(_LINK, ""):
            each.set("href", f"#{name}-{link[1:]}" if link.startswith("#") else link)
        for key, value in each.attrib.items():
            each.set(key, _themed(_REFERENCE.sub(rf"url(#{name}-\1)", value)) if key != "href" else value)
    width, height = (round(_PIXELS * side) for side in figure.get_size_inches())
    root.attrib = {"id": name, "viewBox": root.attrib["viewBox"], "width": str(width), "height": str(height)}
    root.attrib |= {"role": "group" if points else "img", "aria-label": alt}
    return Plot(name, Markup(ElementTree.tostring(root, encoding="unicode")), file, caption)


def _write_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG file with text as text, the same bytes for the same figure."""
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_visible(False)  # the paper is the page's
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()


def _themed(style: str) -> str:
    for light, dark in _THEME.items():
        style = style.replace(light, dark)
    return re.sub(r"font-family: [^;]*;? ?", "", style)


def _make_focusable(group: ElementTree.Element, labels: Sequence[str]) -> None:
    """Wrap each mark of a collection into a group with a label; report.js moves the focus from one to the next."""
    for parent in [*group.iter(f"{_SVG}g")]:
        marks = [child for child in parent if child.tag == f"{_SVG}use"]
        if len(marks) != len(labels):
            continue
        for mark, label in zip(marks, labels):
            about = {"class": "point", "role": "img", "aria-label": label, "tabindex": "-1"}
            point = ElementTree.Element(f"{_SVG}g", about)
            parent.insert([*parent].index(mark), point)
            parent.remove(mark)
            point.append(mark)


_MOST_LOST = 0.1  # of accuracy without the artifact: a strength that loses more does not extend the axes
Ends = tuple[float, float]


def draw_tradeoff(results: Results, lead: Variant | None = None) -> Plot | None:
    """Draw accuracy with the artifact against accuracy without it, for every method and strength.

    An arrow goes from the original model to ``lead``.
    """
    found = paths_of(results)
    if found is None:
        return None
    name, paths = found
    finite = {
        variant: [pair for pair in pairs if not any(map(results.has_diverged, pair))]
        for variant, pairs in paths.items()
    }
    n_points = sum(map(len, finite.values()))
    if not n_points:
        return None
    x, y = _ends(finite)
    shown = {
        variant: [(c, b) for c, b in pairs if x[0] <= c.value <= x[1] and y[0] <= b.value <= y[1]]
        for variant, pairs in finite.items()
    }
    n_columns = 4
    figure = new_figure(width=4.8, height=3.1 + 0.17 * (-(-len(paths) // n_columns) - 2))
    (axes,) = quiet_axes(figure)
    labels: dict[str, list[str]] = {}
    for variant, pairs in shown.items():
        colour, marker = style_of(variant.method)
        if len(pairs) > 1:
            axes.plot([c.value for c, _ in pairs], [b.value for _, b in pairs], color=colour, alpha=0.4, linewidth=1)
        for is_chosen in (False, True):  # the chosen above the others
            marks = [(c, b) for c, b in pairs if bool(c.chosen) == is_chosen]
            if marks:
                gid = f"points-{len(labels)}"
                labels[gid] = [_label(variant.title(paths), pair) for pair in marks]
                above = 5 if variant.method == ORIGINAL else 4
                look = {"s": 75, "zorder": above} if is_chosen else {"s": 20, "zorder": 3, "alpha": 0.65}
                _scatter(axes, [(c.value, b.value) for c, b in marks], colour, marker, gid=gid, **look)
        axes.scatter([], [], s=40, color=colour, marker=marker, label=variant.title(paths))
    axes.set(xlim=x, ylim=y)
    tips = [(c.value, b.value) for v in (results.original, lead) if v for c, b in shown.get(v, ()) if c.chosen]
    if len(tips) == 2 and tips[0] != tips[1]:
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "shrinkA": 7, "shrinkB": 7}
        axes.annotate("", xy=tips[1], xytext=tips[0], arrowprops=arrow, zorder=3.5)
    low, high = max(x[0], y[0]), min(x[1], y[1])
    if low < high:  # where both shares are equal
        axes.plot([low, high], [low, high], color="#AAAAAA", linewidth=1.2, gid="diagonal", zorder=1)
    axes.set_xlabel(f"{name}, without the artifact", color=INK)
    axes.set_ylabel(f"{name},\nwith the artifact", color=INK)
    show_percent(axes.xaxis, axes.yaxis)
    _legend(figure, n_columns)
    alt = f"{name} with the artifact against that without it, test images: every method and strength."
    n_outside = n_points - sum(map(len, shown.values()))
    caption = _caption(results, low < high, n_outside)
    return make_plot(figure, "tradeoff", alt=alt, caption=caption, points=labels)


def _scatter(axes: Axes, places: Sequence[Ends], colour: str, marker: str, **look: Any) -> None:
    across, up = zip(*places)
    axes.scatter(across, up, color=colour, marker=marker, ec="white", linewidths=0.8, clip_on=False, **look)


def _legend(figure: Figure, n_columns: int) -> None:
    figure.legend(
        loc="outside lower center",
        ncols=n_columns,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handletextpad=0.3,
        columnspacing=1.0,
    )


def _ends(points: Mapping[Variant, Sequence[Pair]]) -> tuple[Ends, Ends]:
    """Let the axes span what could be chosen: one collapsed model would press all others into a corner."""
    original = next((c.value for v, found in points.items() if v.method == ORIGINAL for c, _ in found), None)
    pairs = [pair for found in points.values() for pair in found]
    kept = [(c, b) for c, b in pairs if c.chosen or original is None or c.value >= original - _MOST_LOST] or pairs
    ends = []
    for values in ([c.value for c, _ in kept], [b.value for _, b in kept]):
        margin = max(0.05 * (max(values) - min(values)), 0.005)
        ends.append((min(values) - margin, max(values) + margin))
    return ends[0], ends[1]


def _label(title: str, pair: Pair) -> str:
    clean, biased = pair
    strength = "" if clean.strength is None else f", strength {clean.strength:.3g}"
    chosen = " (chosen)" if clean.strength is not None and clean.chosen else ""
    return f"{title}{strength}{chosen}: {percent(clean.value)} without the artifact, {percent(biased.value)} with it"


def _caption(results: Results, has_diagonal: bool, n_outside: int) -> str:
    words = SENTENCES["tradeoff"]
    parts = [words["all"], words["others"]]
    if results.is_inserted:
        parts[1] = words["diagonal" if has_diagonal else "no_diagonal"]
    if n_outside:
        lose = "strength that loses" if n_outside == 1 else "strengths that lose"
        parts.append(words["outside"].format(n=n_outside, lose=lose, most=100 * _MOST_LOST))
    return " ".join(parts)


_MOST_CLASSES = 16  # in the chart; of more, those that changed most
_CHANGES = (
    (GREEN, "^", "rise, interval above 0"),
    (VERMILION, "v", "drop, interval below 0"),
    ("#888888", "o", "interval includes 0"),
    (BLUE, "D", "no interval computed"),
)


def draw_classes(results: Results, shown: Variant | None) -> Plot | None:
    """Draw by how much each class's sensitivity changed, without the artifact and with it; None where unknown."""
    found = {}
    for condition in ("clean", "biased"):
        before, after = (results.of_classes(each, f"sensitivity_{condition}") for each in (results.original, shown))
        found[condition] = {label: (before[label], after[label]) for label in before.keys() & after.keys()}
    if shown is None or not found["clean"]:
        return None
    changes = {
        condition: {label: new.value - old.value for label, (old, new) in pairs.items()}
        for condition, pairs in found.items()
    }
    order = sorted(changes["clean"], key=lambda label: -abs(changes["clean"][label]))[:_MOST_CLASSES]
    order.sort(key=lambda label: changes["clean"][label])
    names = [results.class_title(label) for label in order]
    conditions = [condition for condition in found if any(label in changes[condition] for label in order)]
    figure = new_figure(width=9.6, height=1.35 + 0.34 * len(order))
    words, seen = [], set[int]()
    for axes, condition in zip(quiet_axes(figure, columns=len(conditions)), conditions):
        kinds: dict[int, list[Ends]] = {}
        for place, label in enumerate(order):
            if label not in changes[condition]:
                continue
            change, (old, new) = changes[condition][label], found[condition][label]
            known = results.class_difference(shown, label) if condition == "clean" else None
            if known is not None:
                axes.plot([known.low, known.high], [place, place], color=INK, linewidth=1.3, zorder=2)
            kind = 3 if known is None else 0 if known.low > 0 else 1 if known.high < 0 else 2
            kinds.setdefault(kind, []).append((change, place))
            axes.annotate(
                f"{percent(old.value)} → {percent(new.value)}",
                (1.0, place),
                xycoords=axes.get_yaxis_transform(),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=INK,
            )
            where = "without" if condition == "clean" else "with"
            words.append(f"{names[place]} {where} the artifact {write_points(change)} points")
        axes.axvline(0, color="#888888", linewidth=1, zorder=1)
        for label, budget in results.class_budgets.items():
            if condition == "clean" and label in order:
                place = order.index(label)
                axes.plot([-budget] * 2, [place - 0.4, place + 0.4], color=ALARM, linestyle=":", linewidth=1.6)
        seen |= kinds.keys()
        for kind, places in kinds.items():
            _scatter(axes, places, *_CHANGES[kind][:2], s=55, zorder=3)
        axes.set_yticks(range(len(order)), names)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_title(f"{'Without' if condition == 'clean' else 'With'} the artifact", fontsize=10, color=INK)
        axes.set_xlabel("change of sensitivity (points)", color=INK)
        axes.xaxis.set_major_formatter(lambda change, _: write_points(change).removesuffix(".0"))
        axes.margins(x=0.12)
    for kind in sorted(seen):
        colour, marker, title = _CHANGES[kind]
        figure.axes[0].scatter([], [], s=45, color=colour, marker=marker, label=title)
    _legend(figure, len(_CHANGES))
    alt = f"Change of each class's sensitivity from the original model to {results.title(shown)}: {'; '.join(words)}."
    caption = SENTENCES["captions"]["classes"].format(method=results.title(shown))
    if results.class_budgets:
        caption += f" {SENTENCES['captions']['class_budgets']}"
    if left_out := len(changes["clean"]) - len(order):
        caption += f" The {len(order)} classes that changed most; {left_out} more are in results.csv."
    return make_plot(figure, "classes", alt=alt, caption=caption)


OWN, OTHER = (VERMILION, "s"), (BLUE, "o")  # images of the biased class itself, and all others


@dataclass(frozen=True)
class Effect:
    """The plot as the page shows it: one whose points move, still ones of all methods, and what the points say."""

    live: Markup
    still: Markup
    caption: str
    choices: tuple[tuple[str, str], ...]  # method, title
    shown: str
    data: dict[str, Any]  # for report.js


def draw_effect(results: Results, cases: Cases, shown: str) -> Effect | None:
    """Draw the sample of images under every method; ``shown`` is the method that is seen first."""
    methods, rows = cases.methods(results), np.flatnonzero(cases.is_sampled)
    biased = results.meta.get("biased_class")
    if not methods or not isinstance(biased, int):
        return None
    rows = rows[np.argsort(cases.labels[rows] == biased, kind="stable")]  # the order in which they are drawn
    n_others = int((cases.labels[rows] != biased).sum())
    first = shown if shown in methods else methods[0]
    name = results.class_title(biased)
    ends = ("without the artifact", "with it") if cases.is_paired else ("before the correction", "after it")
    named = (f"Probability of “{name}”, {ends[0]}", f"Probability of “{name}”, {ends[1]}")
    alt = f"{named[0]} and {ends[1]}: one point for each of {len(rows)} test images"
    classes = [results.class_title(int(cases.labels[row])) for row in rows]
    places = {method: np.stack(cases.values(method, "biased_class"), 1)[rows] for method in methods}

    def draw(axes: Axes, method: str, size: float) -> None:
        for part, (colour, marker), gid in (
            (slice(n_others), OTHER, "points-0"),
            (slice(n_others, None), OWN, "points-1"),
        ):
            if len(places[method][part]):
                _scatter(axes, places[method][part].tolist(), colour, marker, s=size, alpha=0.75, gid=gid)
        axes.plot([0, 1], [0, 1], color="#AAAAAA", linewidth=1.2, zorder=1)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        show_percent(axes.xaxis, axes.yaxis)

    def words(method: str) -> list[list[str]]:
        """Return what the points of a method say: both probabilities and the answers."""
        shares, answers = cases.values(method, "biased_class"), cases.values(method, "predicted")
        return [
            [
                *(percent(float(each[row])) for each in shares),
                f"answer {describe_change(results, *(int(each[row]) for each in answers))}",
            ]
            for row in rows
        ]

    live = new_figure(width=4.8, height=4.3)
    (axes,) = quiet_axes(live)
    draw(axes, first, 26)
    axes.set_xlabel(named[0], color=INK)
    axes.set_ylabel(named[1], color=INK)
    labels = [f"Test image {number}, {title}" for number, title in enumerate(classes, 1)]
    groups = {"points-0": labels[:n_others], "points-1": labels[n_others:]}
    alone = f"{alt}. The arrow keys go from point to point."
    svg = make_plot(live, "effect", alt=alone, points={gid: each for gid, each in groups.items() if each}).svg
    n_columns = min(4, len(methods))
    still = new_figure(width=2.35 * n_columns, height=2.3 * -(-len(methods) // n_columns))
    panels = quiet_axes(still, rows=-(-len(methods) // n_columns), columns=n_columns)
    for panel, method in zip(panels, methods):
        draw(panel, method, 9)
        panel.set_title(method_title(method), fontsize=9, color=INK)
    for panel in panels[len(methods) :]:
        panel.remove()
    still.supxlabel(f"Probability of “{name}”, {ends[0]}", fontsize=9, color=INK)
    still.supylabel(ends[1], fontsize=9, color=INK)
    box, (width, height) = axes.get_position(), 72 * live.get_size_inches()

    def pixels(method: str) -> list[list[float]]:
        """Return where the points of a method lie in the units of the live plot."""
        across, up = places[method].astype(float).T
        x, y = (box.x0 + across * box.width) * width, (1 - box.y0 - up * box.height) * height
        return [[round(float(x_), 1), round(float(y_), 1)] for x_, y_ in zip(x, y)]

    return Effect(
        live=svg,
        still=make_plot(still, "effect-still", alt=f"{alt}, under each of {len(methods)} models").svg,
        caption=_effect_caption(cases, name, len(rows)),
        choices=tuple((method, method_title(method)) for method in methods),
        shown=first,
        data={
            "name": name,
            "ends": ends,
            "first": first,
            "images": [
                {"label": title, **{kind: picture_of(pixels_[row]) for kind, pixels_ in cases.pictures.items()}}
                for row, title in zip(rows, classes)
            ],
            "methods": {
                method: {"title": method_title(method), "places": pixels(method), "words": words(method)}
                for method in methods
            },
        },
    )


def _effect_caption(cases: Cases, name: str, n: int) -> str:
    kind = "" if cases.is_paired else " with a natural artifact"
    images = f"All {n} test images{kind}" if n == cases.total else f"{n} test images{kind}, drawn at random"
    meaning = SENTENCES["captions"]["effect_of_artifact" if cases.is_paired else "effect_of_correction"]
    return f"{images}. {meaning.format(name=name)}"
