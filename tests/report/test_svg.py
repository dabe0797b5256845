"""Axes and marks of the plots that the page can ask."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest

from hansfree.report.figures import _MARKERS, drawn_order, style_of
from hansfree.report.plots import Frame, add_mark, add_points, ticks, to_file, to_markup

FRAME = Frame((0.2, 0.8), (0.0, 1.0), 300, 200)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.43, 0.49, [0.43, 0.44, 0.45, 0.46, 0.47, 0.48, 0.49])],
)
def test_ticks_are_round_and_between_the_ends(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_the_corners_of_the_frame_are_its_ends() -> None:
    assert FRAME.place(0.2, 0.0) == (FRAME.left, 200 - FRAME.bottom)
    assert FRAME.place(0.8, 1.0) == (300 - FRAME.right, FRAME.top)
    assert FRAME.holds(0.5, 0.5)
    assert not FRAME.holds(0.1, 0.5)


def test_every_mark_of_the_style_has_a_shape() -> None:
    for marker in {*_MARKERS, *(style_of(method)[1] for method in drawn_order())}:
        parent = Element("g")
        add_mark(parent, marker, "#000000", size=4)
        assert parent[0].get("d", "").endswith("Z")


def test_words_are_escaped_and_a_file_names_its_language() -> None:
    svg = FRAME.draw("<x>", "y & z", name="plot", alt='a "quoted" <word>')
    add_points(svg, ["one", "two"])
    text = to_markup(svg)
    assert "<x>" not in text
    assert "http" not in text
    read = fromstring(to_file(svg))
    assert read.tag == "{http://www.w3.org/2000/svg}svg"
    assert read.get("aria-label") == 'a "quoted" <word>'
    points = [each for each in read if each.get("class") == "point"]
    assert [(each.get("aria-label"), each.get("tabindex")) for each in points] == [("one", "0"), ("two", "-1")]
