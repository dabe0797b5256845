"""Inline SVG plots: the trade-off of all strengths, and the effect on each image."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np
from markupsafe import Markup

from hansfree.evaluation import BIASED, ORIGINAL, Results, Variant, method_title
from hansfree.report.figures import BLUE, FAINT, INK, VERMILION, Pair, paths_of, style_of
from hansfree.report.images import Cases, name_answer, picture_of, titles_of
from hansfree.report.numbers import percent

_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)  # between ticks, of shares

_MOST_TICKS = 8

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"


def _polygon(corners: int, turn: float = 0.0, radii: tuple[float, ...] = (1.0,)) -> str:
    points = []
    for k in range(corners):
        angle, radius = math.radians(turn - 90) + 2 * math.pi * k / corners, radii[k % len(radii)]
        points.append(f"{radius * math.cos(angle):.3f} {radius * math.sin(angle):.3f}")
    return f"M{'L'.join(points)}Z"


_PLUS = "M-.35-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z"

# By matplotlib's letters, as `style_of` gives them; each fits into a circle of radius 1 or a little more.
_SHAPES = {
    "o": "M-.9 0A.9.9 0 1 0 .9 0A.9.9 0 1 0-.9 0Z",
    "s": _polygon(4, 45, (1.15,)),
    "D": _polygon(4, 0, (1.15,)),
    "^": _polygon(3, 0, (1.2,)),
    "v": _polygon(3, 180, (1.2,)),
    "<": _polygon(3, 270, (1.2,)),
    ">": _polygon(3, 90, (1.2,)),
    "d": _polygon(4, 0, (1.25, 0.75)),
    "h": _polygon(6),
    "8": _polygon(8, 22.5),
    "p": _polygon(5, 0, (1.1,)),
    "*": _polygon(10, 0, (1.25, 0.55)),
    "P": _PLUS,
    "X": _PLUS,  # turned by 45 degrees
}


def add_mark(parent: Element, marker: str, colour: str, *, size: float, opacity: float = 1.0) -> None:
    """Draw a method's mark around the origin of ``parent``; ``size`` is its radius in pixels."""
    turn = " rotate(45)" if marker == "X" else ""
    SubElement(
        parent,
        "path",
        {"d": _SHAPES[marker], "transform": f"scale({size:g}){turn}", "fill": colour, "fill-opacity": f"{opacity:g}"}
        | {"stroke": "white", "stroke-width": "1", "vector-effect": "non-scaling-stroke"},
    )


@dataclass(frozen=True)
class Frame:
    """Two axes of shares, and where a point lies between them, in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float
    height: float
    left: float = 62
    right: float = 26
    top: float = 12
    bottom: float = 48

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a pair of shares lies."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return (
            round(self.left + across * (self.width - self.left - self.right), 1),
            round(self.height - self.bottom - up * (self.height - self.top - self.bottom), 1),
        )

    def holds(self, x: float, y: float) -> bool:
        """Return whether a pair of shares lies between the axes."""
        return self.x[0] <= x <= self.x[1] and self.y[0] <= y <= self.y[1]

    @property
    def has_diagonal(self) -> bool:
        """Whether the line on which both shares are equal passes between the axes."""
        return max(self.x[0], self.y[0]) < min(self.x[1], self.y[1])

    def draw(self, x_label: str, y_label: str, *, name: str, alt: str, room: float = 0, font: float = 13) -> Element:
        """Return a drawing with ticks, words, and the line on which both shares are equal.

        Args:
            name: Its id on the page.
            alt: What it says, for those who do not see it.
            room: Pixels that are left free at the right, for a legend.
        """
        size = {"width": f"{self.width + room:g}", "height": f"{self.height:g}"}
        box = f"0 0 {self.width + room:g} {self.height:g}"
        svg = Element("svg", {"id": name, "viewBox": box, "role": "group", "aria-label": alt, **size})
        svg.set("font-family", _FONT)
        svg.set("font-size", f"{font:g}")
        svg.set("fill", INK)
        (left, bottom), (right, top) = self.place(self.x[0], self.y[0]), self.place(self.x[1], self.y[1])
        for share in ticks(*self.x):
            across, _ = self.place(share, self.y[0])
            add_line(svg, across, top, across, bottom, FAINT)
            add_text(svg, across, bottom + font + 4, _percent(share), anchor="middle")
        for share in ticks(*self.y):
            _, up = self.place(self.x[0], share)
            add_line(svg, left, up, right, up, FAINT)
            add_text(svg, left - 7, up + 0.35 * font, _percent(share), anchor="end")
        if self.has_diagonal:
            low, high = max(self.x[0], self.y[0]), min(self.x[1], self.y[1])
            add_line(svg, *self.place(low, low), *self.place(high, high), "#AAAAAA", width=1.5)
        add_text(svg, (left + right) / 2, self.height - 6, x_label, anchor="middle")
        words = add_text(svg, 0, 0, y_label, anchor="middle")
        words.set("transform", f"translate({font:g} {(top + bottom) / 2:g}) rotate(-90)")
        return svg


def add_line(parent: Element, x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1) -> None:
    """Draw a line."""
    ends = {"x1": f"{x1:g}", "y1": f"{y1:g}", "x2": f"{x2:g}", "y2": f"{y2:g}"}
    SubElement(parent, "line", ends | {"stroke": colour, "stroke-width": f"{width:g}"})


def add_text(parent: Element, x: float, y: float, words: str, *, anchor: str = "start") -> Element:
    """Write words."""
    text = SubElement(parent, "text", {"x": f"{x:g}", "y": f"{y:g}", "text-anchor": anchor})
    text.text = words
    return text


def add_points(parent: Element, labels: Iterable[str]) -> list[Element]:
    """Add groups that take the focus and say what they are; the first is the one that the tab key reaches.

    report.js moves the focus with the arrow keys: with hundreds of points, each must not be a stop of its own.
    """
    return [
        SubElement(
            parent, "g", {"class": "point", "role": "img", "aria-label": label, "tabindex": "-1" if number else "0"}
        )
        for number, label in enumerate(labels)
    ]


def ticks(low: float, high: float) -> list[float]:
    """Return round shares between two ends."""
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_TICKS), _STEPS[-1])
    return [round(k * step, 4) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def to_markup(svg: Element) -> Markup:
    """Return a drawing as the page holds it; words in it are escaped."""
    return Markup(tostring(svg, encoding="unicode"))  # ElementTree escapes


def to_file(svg: Element) -> str:
    """Return a drawing as a file of its own, which has to name its language."""
    return tostring(svg, encoding="unicode").replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


_WIDTH, _HEIGHT, _LEGEND = 620, 520, 190  # pixels

_LINE, _LETTER = 26, 7.2  # pixels, of the legend

_MOST_LOST = 0.1  # of accuracy without the artifact: who loses more is no choice, and gets no room on the axes

_LARGE, _SMALL = 9.0, 4.5  # radius of the chosen strength's mark, and of the others'


@dataclass(frozen=True)
class Plot:
    """An SVG with the words below it."""

    svg: Element
    caption: str

    @property
    def markup(self) -> Markup:
        """The drawing as the page holds it."""
        return to_markup(self.svg)


def draw_tradeoff(results: Results) -> Plot | None:
    """Draw accuracy with the artifact against accuracy without it, for every method and strength."""
    found = paths_of(results)
    if found is None:
        return None
    name, paths = found
    finite = {
        variant: [pair for pair in pairs if not any(map(results.has_diverged, pair))]
        for variant, pairs in paths.items()
    }
    points = [(variant, pair) for variant, pairs in finite.items() for pair in pairs]
    if not points:
        return None
    frame = _frame(finite)
    inside = [(variant, pair) for variant, pair in points if frame.holds(pair[0].value, pair[1].value)]
    svg = frame.draw(
        f"{name}, without the artifact",
        f"{name}, with the artifact",
        name="tradeoff",
        alt=f"{name} with the artifact against that without it, test images: every method and strength.",
        room=max(_LEGEND, 40 + _LETTER * max(len(variant.title(paths)) for variant in paths)),
    )
    shown = {variant: [pair for each, pair in inside if each == variant] for variant in paths}
    for variant, pairs in shown.items():
        _add_path(svg, frame, variant, pairs)
    # the chosen last: drawn above the others; the arrow keys follow the same order
    ordered = sorted(inside, key=lambda point: bool(point[1][0].chosen))
    labels = [_label(variant.title(paths), pair) for variant, pair in ordered]
    for element, (variant, (clean, biased)) in zip(add_points(svg, labels), ordered):
        across, up = frame.place(clean.value, biased.value)
        element.set("transform", f"translate({across:g} {up:g})")
        colour, marker = style_of(variant.method)
        SubElement(element, "circle", {"r": "9", "fill": "transparent"})  # a small mark is hard to hit
        size = _LARGE if clean.chosen else _SMALL
        add_mark(element, marker, colour, size=size, opacity=1.0 if clean.chosen else 0.6)
    _add_legend(svg, list(paths), paths)
    return Plot(svg, _caption(results, frame, len(points) - len(inside)))


def explain_missing(results: Results) -> str:
    """Say why accuracy with the artifact is not drawn against that without; empty where it could be."""
    unknown = results.why_unknown(BIASED)
    if unknown is None:
        return ""
    return f"Accuracy with the artifact is not drawn against accuracy without it: {unknown.reason}."


def _frame(points: dict[Variant, list[Pair]]) -> Frame:
    """Let the axes span what could be chosen: one collapsed model would press all others into a corner."""
    original = next((c.value for v, found in points.items() if v.method == ORIGINAL for c, _ in found), None)
    pairs = [pair for found in points.values() for pair in found]
    kept = [(c, b) for c, b in pairs if c.chosen or original is None or c.value >= original - _MOST_LOST] or pairs
    ends = []
    for values in ([c.value for c, _ in kept], [b.value for _, b in kept]):
        margin = max(0.05 * (max(values) - min(values)), 0.005)
        ends.append((min(values) - margin, max(values) + margin))
    return Frame(ends[0], ends[1], _WIDTH, max(_HEIGHT, _LINE * (len(points) + 2)))


def _add_path(svg: Element, frame: Frame, variant: Variant, pairs: list[Pair]) -> None:
    if len(pairs) > 1:
        places = " ".join("{:g},{:g}".format(*frame.place(c.value, b.value)) for c, b in pairs)
        line = {"points": places, "fill": "none", "stroke": style_of(variant.method)[0], "stroke-opacity": ".4"}
        SubElement(svg, "polyline", line)


def _add_legend(svg: Element, variants: list[Variant], among: dict[Variant, list[Pair]]) -> None:
    for number, variant in enumerate(variants):
        up = 40 + _LINE * number
        mark = SubElement(svg, "g", {"transform": f"translate({_WIDTH + 16} {up})"})
        add_mark(mark, style_of(variant.method)[1], style_of(variant.method)[0], size=7)
        add_text(svg, _WIDTH + 32, up + 4.5, variant.title(among))


def _label(title: str, pair: Pair) -> str:
    clean, biased = pair
    strength = "" if clean.strength is None else f", strength {clean.strength:.3g}"
    chosen = " (chosen)" if clean.strength is not None and clean.chosen else ""
    return f"{title}{strength}{chosen}: {percent(clean.value)} without the artifact, {percent(biased.value)} with it"


def _caption(results: Results, frame: Frame, n_outside: int) -> str:
    words = "All strengths on the test images; large marks are the chosen ones. Up and to the right is better."
    if results.is_inserted:
        line = "On the grey line" if frame.has_diagonal else "Where both shares are equal, outside these axes,"
        words += f" {line} the artifact costs nothing."
    else:
        words += (
            " The images with the artifact are others than those without, and need not be as hard: not all of the "
            "difference is the artifact's doing."
        )
    if n_outside:
        lies, loses = ("strength lies", "it loses") if n_outside == 1 else ("strengths lie", "they lose")
        words += (
            f" {n_outside} {lies} outside the axes: {loses} more than {100 * _MOST_LOST:g} points without the artifact."
        )
    return words


_LIVE = Frame((0, 1), (0, 1), 560, 528)

_PANEL = Frame((0, 1), (0, 1), 300, 284, left=52, right=24, bottom=42)

OWN, OTHER = (VERMILION, "s"), (BLUE, "o")  # images of the biased class itself, and all others


@dataclass(frozen=True)
class Effect:
    """The plot as the page shows it: one whose points move, a still one per method, and what the points tell."""

    live: Markup
    panels: tuple[Markup, ...]
    caption: str
    choices: tuple[tuple[str, str], ...]
    shown: str
    data: dict[str, Any]  # for report.js


def draw_effect(results: Results, cases: Cases, shown: str) -> Effect | None:
    """Draw the sample of images under every method; ``shown`` is the method that is seen first."""
    methods, rows = cases.methods(results), np.flatnonzero(cases.is_sampled)
    biased = results.meta.get("biased_class")
    if not methods or not isinstance(biased, int):
        return None
    first = shown if shown in methods else methods[0]
    name = results.class_title(biased)
    ends = ("without the artifact", "with it") if cases.is_paired else ("before the correction", "after it")
    axes = tuple(f"Probability of “{name}”, {end}" for end in ends)
    alt = f"{axes[0]} and {ends[1]}: one point for each of {len(rows)} test images"
    labels = [
        f"Test image {number + 1}, {results.class_title(int(cases.labels[row]))}" for number, row in enumerate(rows)
    ]
    is_own = cases.labels[rows] == biased
    return Effect(
        live=_live(cases, first, rows, is_own, axes, alt=alt, labels=labels),
        panels=tuple(
            _panel(cases, method, rows, is_own, ends, alt=f"{alt}, {method_title(method)}") for method in methods
        ),
        caption=_image_caption(cases, name, len(rows)),
        choices=titles_of(methods),
        shown=first,
        data={
            "name": name,
            "ends": ends,
            "images": [_image(results, cases, int(row)) for row in rows],
            "methods": {method: _told(results, cases, method, rows) for method in methods},
        },
    )


def _live(
    cases: Cases,
    method: str,
    rows: np.ndarray,
    is_own: np.ndarray,
    axes: tuple[str, ...],
    *,
    alt: str,
    labels: list[str],
) -> Markup:
    svg = _LIVE.draw(*axes, name="effect", alt=f"{alt}. The arrow keys go from point to point.")
    for element, (across, up), own in zip(add_points(svg, labels), _places(_LIVE, cases, method, rows), is_own):
        element.set("style", f"transform:translate({across:g}px,{up:g}px)")  # a style, as those can glide
        _mark(element, bool(own), size=5)
    return to_markup(svg)


def _panel(
    cases: Cases, method: str, rows: np.ndarray, is_own: np.ndarray, ends: tuple[str, ...], *, alt: str
) -> Markup:
    svg = _PANEL.draw(ends[0], ends[1], name=f"effect-{method}", alt=alt, font=11)
    svg.set("role", "img")
    for (across, up), own in zip(_places(_PANEL, cases, method, rows), is_own):
        _mark(SubElement(svg, "g", {"transform": f"translate({across:g} {up:g})"}), bool(own), size=3)
    return to_markup(svg)


def _places(frame: Frame, cases: Cases, method: str, rows: np.ndarray) -> list[tuple[float, float]]:
    across, up = cases.places(method)
    return [frame.place(float(across[row]), float(up[row])) for row in rows]


def _mark(parent: Element, is_own: bool, *, size: float) -> None:
    colour, marker = OWN if is_own else OTHER
    add_mark(parent, marker, colour, size=size, opacity=0.7)


def _image(results: Results, cases: Cases, row: int) -> dict[str, str]:
    pictures = {condition: picture_of(pixels[row]) for condition, pixels in cases.pictures.items()}
    return {"label": results.class_title(int(cases.labels[row])), **pictures}


def _told(results: Results, cases: Cases, method: str, rows: np.ndarray) -> dict[str, Any]:
    """Return where the points of a method lie, and in words what each of them says."""
    probabilities, answers = cases.places(method), cases.answers(method)
    words = []
    for row in rows:
        shares = [percent(float(each[row])) for each in probabilities]
        old, new = (name_answer(results, int(each[row])) for each in answers)
        words.append([*shares, f"answer stays {new}" if old == new else f"answer {old} → {new}"])
    return {"title": method_title(method), "places": _places(_LIVE, cases, method, rows), "words": words}


def _image_caption(cases: Cases, name: str, n: int) -> str:
    kind = "" if cases.is_paired else " with a natural artifact"
    images = f"All {n} test images{kind}" if n == cases.total else f"{n} test images{kind}, drawn at random"
    if cases.is_paired:
        return (
            f"{images}. On the grey line the artifact does nothing; above it, it pulls the "
            f"image towards “{name}”. Orange squares are images of that class, blue circles all others."
        )
    return (
        f"{images}. On the grey line the correction changes nothing; below it, "
        f"“{name}” became less probable: right for the blue circles, which are images of other classes, and a loss for "
        "the orange squares, which are of that class."
    )
