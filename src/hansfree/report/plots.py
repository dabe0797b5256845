"""Interactive plots of the report as inline SVG: the trade-off of all strengths, and the effect on each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from hansfree._internal.files import open_templates
from hansfree.evaluation import BIASED, ORIGINAL, Results, Variant, method_title
from hansfree.report.figures import BLUE, FAINT, INK, VERMILION, Pair, paths_of, style_of
from hansfree.report.images import Cases, describe_change, picture_of
from hansfree.report.numbers import percent

_STEPS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}


@cache
def marker_path(marker: str) -> str:
    """Return a matplotlib marker as the path of an SVG, in a circle of radius 1 or a little more."""
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform() + Affine2D().scale(1.8, -1.8))  # y points down in SVG
    words = []
    for vertices, code in path.iter_segments(simplify=False):
        numbers = "" if code == Path.CLOSEPOLY else " ".join(f"{number:.3g}" for number in vertices)
        words.append(f"{_STEPS[code]}{numbers}")
    return "".join(words)


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round shares between two ends, and how they are written."""
    found = MaxNLocator(nbins=8, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [(share, f"{100 * share:.6g} %") for share in found if low - 1e-9 <= share <= high + 1e-9]


@dataclass(frozen=True)
class Point:
    """A mark on a plot: where it lies in pixels, what it looks like, and what it says."""

    place: tuple[float, float]
    colour: str
    marker: str
    size: float = 7
    opacity: float = 0.7
    label: str = ""


@dataclass(frozen=True)
class Frame:
    """Two axes of shares in pixels."""

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
    def diagonal(self) -> tuple[float, float]:
        """The ends of the line on which both shares are equal."""
        return max(self.x[0], self.y[0]), min(self.x[1], self.y[1])

    @property
    def has_diagonal(self) -> bool:
        """Whether that line passes between the axes."""
        return self.diagonal[0] < self.diagonal[1]

    def draw(
        self,
        name: str,
        points: Sequence[Point],
        *,
        labels: tuple[str, str],
        alt: str,
        lines: Sequence[tuple[str, list[tuple[float, float]]]] = (),
        legend: Sequence[Point] = (),
        font: int = 13,
        is_still: bool = False,
    ) -> Markup:
        """Return the SVG.

        Args:
            name: its id on the page.
            labels: of the axes.
            alt: what it says, for those who do not see it.
            lines: colours, and the places that each line connects.
            is_still: its points do not take the focus.
        """
        room = max([190.0, *(40 + 7.2 * len(point.label) for point in legend)]) if legend else 0
        template = open_templates("report", is_html=True).get_template("plot.svg.jinja")
        return Markup(
            template.render(
                frame=self,
                name=name,
                points=points,
                labels=labels,
                alt=alt,
                lines=lines,
                legend=legend,
                font=font,
                is_still=is_still,
                width=round(self.width + room, 1),
                ticks=ticks,
                marker_path=marker_path,
                ink=INK,
                faint=FAINT,
            )
        )


def to_file(svg: Markup) -> str:
    """Return a drawing as a file of its own, which has to name its language."""
    return str(svg).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)


_MOST_LOST = 0.1  # of accuracy without the artifact: a strength that loses more does not extend the axes


@dataclass(frozen=True)
class Plot:
    """An SVG with the words below it."""

    svg: Markup
    caption: str


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
    n_points = sum(map(len, finite.values()))
    if not n_points:
        return None
    frame = _frame(finite)
    shown = {variant: [(c, b) for c, b in pairs if frame.holds(c.value, b.value)] for variant, pairs in finite.items()}
    inside = [(variant, pair) for variant, pairs in shown.items() for pair in pairs]
    points = [
        Point(
            frame.place(clean.value, biased.value),
            *style_of(variant.method),
            size=9 if clean.chosen else 4.5,
            opacity=1 if clean.chosen else 0.6,
            label=_label(variant.title(paths), (clean, biased)),
        )
        # the chosen ones last: above the others
        for variant, (clean, biased) in sorted(inside, key=lambda point: bool(point[1][0].chosen))
    ]
    svg = frame.draw(
        "tradeoff",
        points,
        labels=(f"{name}, without the artifact", f"{name}, with the artifact"),
        alt=f"{name} with the artifact against that without it, test images: every method and strength.",
        lines=[
            (style_of(variant.method)[0], [frame.place(c.value, b.value) for c, b in pairs])
            for variant, pairs in shown.items()
            if len(pairs) > 1
        ],
        legend=[Point((0, 0), *style_of(variant.method), label=variant.title(paths)) for variant in paths],
    )
    return Plot(svg, _caption(results, frame, n_points - len(inside)))


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
    return Frame(ends[0], ends[1], 620, max(520, 26 * (len(points) + 2)))  # the legend has 26 pixels per line


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
            " The images with the artifact are others than those without, so the difference is not due to the artifact "
            "alone."
        )
    if n_outside:
        lose = "strength that loses" if n_outside == 1 else "strengths that lose"
        words += f" Outside the axes: {n_outside} {lose} more than {100 * _MOST_LOST:g} points without the artifact."
    return words


_LIVE = Frame((0, 1), (0, 1), 560, 528)

_PANEL = Frame((0, 1), (0, 1), 300, 284, left=52, right=24, bottom=42)

OWN, OTHER = (VERMILION, "s"), (BLUE, "o")  # images of the biased class itself, and all others


@dataclass(frozen=True)
class Effect:
    """The plot as the page shows it: one whose points move, a still one per method, and what the points say."""

    live: Markup
    panels: tuple[Markup, ...]
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
    first = shown if shown in methods else methods[0]
    name = results.class_title(biased)
    ends = ("without the artifact", "with it") if cases.is_paired else ("before the correction", "after it")
    axes = (f"Probability of “{name}”, {ends[0]}", f"Probability of “{name}”, {ends[1]}")
    alt = f"{axes[0]} and {ends[1]}: one point for each of {len(rows)} test images"
    classes = [results.class_title(int(cases.labels[row])) for row in rows]

    def points(frame: Frame, method: str, size: float) -> list[Point]:
        across, up = cases.values(method, "biased_class")
        return [
            Point(
                frame.place(float(across[row]), float(up[row])),
                *(OWN if cases.labels[row] == biased else OTHER),
                size=size,
                label=f"Test image {number}, {title}",
            )
            for number, (row, title) in enumerate(zip(rows, classes), 1)
        ]

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

    return Effect(
        live=_LIVE.draw(
            "effect",
            points(_LIVE, first, 5),
            labels=axes,
            alt=f"{alt}. The arrow keys go from point to point.",
        ),
        panels=tuple(
            _PANEL.draw(
                f"effect-{method}",
                points(_PANEL, method, 3),
                labels=ends,
                alt=f"{alt}, {method_title(method)}",
                font=11,
                is_still=True,
            )
            for method in methods
        ),
        caption=_effect_caption(cases, name, len(rows)),
        choices=tuple((method, method_title(method)) for method in methods),
        shown=first,
        data={
            "name": name,
            "ends": ends,
            "images": [
                {"label": title, **{kind: picture_of(pixels[row]) for kind, pixels in cases.pictures.items()}}
                for row, title in zip(rows, classes)
            ],
            "methods": {
                method: {
                    "title": method_title(method),
                    "places": [point.place for point in points(_LIVE, method, 5)],
                    "words": words(method),
                }
                for method in methods
            },
        },
    )


def _effect_caption(cases: Cases, name: str, n: int) -> str:
    kind = "" if cases.is_paired else " with a natural artifact"
    images = f"All {n} test images{kind}" if n == cases.total else f"{n} test images{kind}, drawn at random"
    if cases.is_paired:
        return (
            f"{images}. On the grey line the artifact does nothing; above it, it pulls the "
            f"image towards “{name}”. Orange squares are images of that class, blue circles all others."
        )
    return (
        f"{images}. On the grey line the correction changes nothing; below it, “{name}” became less probable: right "
        "for the blue circles (images of other classes), a loss for the orange squares (images of that class)."
    )
