"""Plots that the page can ask: inline SVG, whose points take the focus and say what they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from hansfree.report.style import FAINT, INK

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
        """Tell whether a pair of shares lies between the axes."""
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
