"""Clean against biased: every method and strength as a point that can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

from hansfree.report.changes import DECISIVE
from hansfree.report.numbers import percent
from hansfree.report.reading import Results, Variant
from hansfree.report.strengths import Pair, paths_of
from hansfree.report.style import style_of
from hansfree.report.svg import Frame, add_mark, add_points, add_text, to_markup
from hansfree.results import ORIGINAL

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
    unknown = results.why_unknown(DECISIVE)
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
