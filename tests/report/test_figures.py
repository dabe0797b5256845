"""What is drawn, read back from matplotlib's own objects."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from hansfree.cavs import CAV
from hansfree.evaluation.results import Results, Row, load_results
from hansfree.report.figures import draw_alignment, draw_strengths
from tests.report.conftest import CAVS, STRENGTHS, TAKEN, MakeRun

EMPTY = Results(rows=(), meta={}, selection={}, heatmaps=None)


@pytest.mark.parametrize("drawer", [draw_alignment, draw_strengths])
def test_nothing_to_draw_is_no_figure(drawer) -> None:
    assert drawer(EMPTY) is None


def test_alignment_bars_are_the_scores(make_run: MakeRun) -> None:
    drawing = draw_alignment(load_results(make_run()))
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(CAVS)
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers if hasattr(bars, "patches")]
    np.testing.assert_allclose(widths, np.array(list(CAVS.values())).T)
    assert "signal" in drawing.alt
    assert "0.96" in drawing.alt
    assert "s is the cosine with the change of each single image" in drawing.caption


def test_a_cav_without_a_finite_score_is_left_out(make_run: MakeRun) -> None:
    def change(rows: list[Row]) -> list[Row]:
        return [replace(row, value=math.nan) if row.method == "cav:lasso" else row for row in rows]

    drawing = draw_alignment(load_results(make_run(change=change)))
    assert drawing is not None
    assert "lasso" not in drawing.alt


def test_the_curves_run_over_the_strengths(make_run: MakeRun) -> None:
    drawing = draw_strengths(load_results(make_run()))
    assert drawing is not None
    panels = {axes.get_title(): axes for axes in drawing.figure.axes}
    assert set(panels) == {"RRR", "RR-ClArC"}
    np.testing.assert_allclose(panels["RR-ClArC"].lines[0].get_xdata(), [s for s in STRENGTHS["rr-clarc"] if s != 1e5])
    crosses = [line for line in panels["RR-ClArC"].lines if line.get_marker() == "x"]
    np.testing.assert_allclose(crosses[0].get_xdata(), [1e5])
    dotted = [line for line in panels["RRR"].lines if line.get_linestyle() == ":"]
    assert dotted[0].get_xdata()[0] == TAKEN["rrr"]


def test_panels_fill_the_figure_when_nothing_diverged(make_run: MakeRun) -> None:
    # An empty line has no extent, and once pushed the panels apart.
    def change(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row.strength != 1e5]

    drawing = draw_strengths(load_results(make_run(change=change)))
    assert drawing is not None
    drawing.figure.draw_without_rendering()
    assert sum(axes.get_position().width for axes in drawing.figure.axes) > 0.75


def test_titles_of_many_panels_do_not_meet(make_run: MakeRun) -> None:
    def change(rows: list[Row]) -> list[Row]:
        paths = [row for row in rows if row.method == "rr-clarc"]
        names = [f"rr-clarc-step@{cav}" for cav in CAV.members()]
        return [*rows, *(replace(row, method=name) for name in names for row in paths)]

    drawing = draw_strengths(load_results(make_run(change=change)))
    assert drawing is not None
    drawing.figure.canvas.draw()
    titles = [axes.title.get_window_extent() for axes in drawing.figure.axes]
    assert len(titles) == 2 + len(CAV.members())
    assert not [one for i, one in enumerate(titles) for other in titles[:i] if one.overlaps(other)]


def test_pyplot_is_not_touched(make_run: MakeRun) -> None:
    draw_strengths(load_results(make_run()))
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
