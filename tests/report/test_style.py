"""Titles and colours come from the methods themselves: a new one needs no line elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hansfree.cavs import CAV
from hansfree.corrections import Correction, LatentCorrection, RRClArC, along_cavs
from hansfree.evaluation.results import load_results, method_title
from hansfree.report.figures import OTHER_STYLE, new_figure, quiet_axes, show_percent, style_of
from hansfree.report.plots import _SHAPES
from tests.report.conftest import CHOSEN, MakeRun, score

PAPER = {
    "original": ("Original", "#000000", "X"),
    "vanilla": ("Vanilla", "#E69F00", "s"),
    "rrr": ("RRR", "#CC79A7", "D"),
    "p-clarc": ("P-ClArC", "#009E73", "^"),
    "a-clarc": ("A-ClArC", "#56B4E9", "v"),
    "rr-clarc": ("RR-ClArC", "#D55E00", "o"),
    "clean-trained": ("Clean-trained", "#777777", "P"),
}


@pytest.fixture
def new_methods(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Register many methods for the length of a test."""
    monkeypatch.setattr(Correction, "_members", dict(Correction._members))
    titles = ["Very new", None, *[None] * 20]
    for number, title in enumerate(titles):
        body = {} if title is None else {"info": replace(RRClArC.info, title=title)}
        type(f"New{number}", (RRClArC,), body, name=f"new-{number}")
    return [f"new-{number}" for number in range(len(titles))]


@pytest.mark.parametrize("method", PAPER)
def test_the_papers_methods_keep_their_titles_and_colours(method: str) -> None:
    assert (method_title(method), *style_of(method)) == PAPER[method]


def test_a_new_method_says_its_own_title_or_goes_by_its_name(new_methods: list[str]) -> None:
    assert method_title("new-0") == "Very new"
    assert method_title("new-1") == "new-1", "not that of the method it is a variation of"
    assert method_title("never-registered") == "never-registered"


def test_no_two_methods_look_the_same(new_methods: list[str]) -> None:
    styles = [style_of(name) for name in (*PAPER, *new_methods)]
    assert len(set(styles)) == len(styles)
    assert style_of("never-registered") == OTHER_STYLE


def test_along_a_further_cav_a_method_keeps_its_colour_and_takes_the_cavs_mark() -> None:
    names = list(along_cavs(list(LatentCorrection.members()), list(CAV.members())))
    styles = [style_of(name) for name in names]
    assert len(set(styles)) == len(styles)
    assert style_of("rr-clarc@svm")[0] == style_of("rr-clarc")[0]
    assert style_of("rr-clarc@svm")[1] == style_of("p-clarc@svm")[1]
    assert {marker for _, marker in styles} <= _SHAPES.keys(), "the page can draw them"
    assert method_title("rr-clarc@svm") == "RR-ClArC along svm"
    assert method_title("never-registered@svm") == "never-registered along svm"
    assert style_of("never-registered@svm") == OTHER_STYLE


def test_a_new_method_stands_after_the_papers(new_methods: list[str], make_run: MakeRun) -> None:
    rows = [score(name, "flip_rate", 0.3) for name in ("unheard-of", "new-1", *reversed(CHOSEN), "new-0")]
    found = [variant.method for variant in load_results(make_run(change=lambda _: rows)).methods()]
    assert found == [*list(CHOSEN)[:-1], "new-0", "new-1", "unheard-of", "clean-trained"]


@pytest.mark.parametrize("ends", [(0.463, 0.541), (0.2, 0.95), (0.901, 0.909)])
def test_the_ticks_of_shares_are_even_as_they_are_written(ends: tuple[float, float]) -> None:
    figure = new_figure(height=3.0)
    (axes,) = quiet_axes(figure)
    axes.set_ylim(*ends)
    show_percent(axes.yaxis)
    figure.canvas.draw()
    written = [float(tick.get_text().rstrip(" %")) for tick in axes.get_yticklabels()]
    np.testing.assert_allclose(written, 100 * axes.get_yticks(), atol=1e-6)
    np.testing.assert_allclose(np.diff(written), written[1] - written[0])
