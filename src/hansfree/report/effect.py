"""One point per test image: the biased class's probability without the artifact and with it, for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from markupsafe import Markup

from hansfree.report.cases import Cases, name_answer, titles_of
from hansfree.report.numbers import percent
from hansfree.report.pictures import picture_of
from hansfree.report.reading import Results, method_title
from hansfree.report.style import BLUE, VERMILION
from hansfree.report.svg import Frame, add_mark, add_points, to_markup

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
        caption=_caption(cases, name, len(rows)),
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


def _caption(cases: Cases, name: str, n: int) -> str:
    kind = "" if cases.is_paired else " that have the artifact by nature"
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
