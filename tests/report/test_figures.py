"""What is drawn, read back from matplotlib's own objects."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.report.figures import draw_alignment, draw_heatmaps
from hansfree.report.reading import HeatmapSet, Results, load_results
from hansfree.report.strengths import draw_strengths, draw_tradeoff
from hansfree.results import Row
from tests.report.conftest import CAVS, CHOSEN, STRENGTHS, TAKEN, MakeRun

EMPTY = Results(rows=(), meta={}, selection={}, heatmaps=None)


def small_set(*, masks: np.ndarray | None = None, **relevance: np.ndarray) -> HeatmapSet:
    rectangle = np.zeros((2, 8, 8), dtype=bool)
    rectangle[:, 2:4, 2:6] = True
    images = np.zeros((2, 8, 8, 3), dtype=np.uint8)
    return HeatmapSet(images, rectangle if masks is None else masks, relevance)


def draw(path: Path, heatmaps: HeatmapSet) -> list:
    drawing = draw_heatmaps(replace(EMPTY, heatmaps=heatmaps))
    assert drawing is not None
    drawing.figure.savefig(path / "drawn.png")  # warnings are errors: constrained layout and contours warn late
    return drawing.figure.axes


@pytest.mark.parametrize("drawer", [draw_alignment, draw_heatmaps, draw_strengths, draw_tradeoff])
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


def test_the_tradeoff_shows_every_strength_and_marks_the_chosen(make_run: MakeRun) -> None:
    drawing = draw_tradeoff(load_results(make_run()))
    assert drawing is not None
    (axes,) = drawing.figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["Original", "Vanilla", "RRR", "P-ClArC", "A-ClArC", "RR-ClArC", "Clean-trained"]
    chosen = {line.get_label(): line.get_xydata() for line in axes.lines if line.get_label() in labels}
    np.testing.assert_allclose(chosen["P-ClArC"], [CHOSEN["p-clarc"][:2]])
    points = sum(len(line.get_xydata()) for line in axes.lines if line.get_markersize() == 4.5)
    # all strengths but the chosen two and the one that diverged
    assert points == sum(map(len, STRENGTHS.values())) - 3


@pytest.mark.parametrize("collapsed", [0, 1, 2])
def test_collapsed_strengths_do_not_set_the_axes(make_run: MakeRun, collapsed: int) -> None:
    lost = STRENGTHS["rr-clarc"][5 : 5 + collapsed]

    def change(rows: list[Row]) -> list[Row]:
        kept = [row for row in rows if row.method != "rr-clarc" or row.strength in (1.0, TAKEN["rr-clarc"], *lost)]
        return [replace(row, value=0.25) if row.method == "rr-clarc" and row.strength in lost else row for row in kept]

    drawing = draw_tradeoff(load_results(make_run(change=change)))
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert 0.8 < axes.get_xlim()[0] < CHOSEN["p-clarc"][0]
    assert axes.get_ylim()[0] < CHOSEN["original"][1]
    notes = ["", " 1 strength lies outside the axes: it loses", " 2 strengths lie outside the axes: they lose"]
    assert ("outside the axes" in drawing.caption) == (collapsed > 0)
    assert notes[collapsed] in drawing.caption


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


def test_heatmaps_stand_in_the_order_of_the_table(make_run: MakeRun) -> None:
    results = replace(
        load_results(make_run()), heatmaps=small_set(vanilla=np.ones((2, 8, 8)), original=np.ones((2, 8, 8)))
    )
    drawing = draw_heatmaps(results)
    assert drawing is not None
    assert [axes.get_title() for axes in drawing.figure.axes[:3]] == ["input", "Original", "Vanilla"]


def test_all_heatmaps_share_one_symmetric_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    panels = draw(tmp_path, small_set(original=rng.normal(size=(2, 8, 8)), vanilla=10 * rng.normal(size=(2, 8, 8))))
    limits = {axes.images[0].get_clim() for axes in panels if axes.images and axes.images[0].get_array().ndim == 2}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high < 0


def test_grey_images_are_grey_and_not_stretched(tmp_path: Path) -> None:
    grey = replace(small_set(original=np.ones((2, 8, 8))), images=np.full((2, 8, 8, 1), 100, dtype=np.uint8))
    picture = draw(tmp_path, grey)[0].images[0]
    assert (picture.get_cmap().name, picture.get_clim()) == ("gray", (0, 255))


def test_the_mask_is_outlined_unless_it_fills_the_image(tmp_path: Path) -> None:
    maps = np.ones((2, 8, 8))
    outlined = draw(tmp_path, small_set(original=maps))
    assert sum(bool(axes.collections) for axes in outlined[:4]) == 4
    filled = draw(tmp_path, small_set(original=maps, masks=np.ones((2, 8, 8), dtype=bool)))
    assert not any(axes.collections for axes in filled[:4])


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_heatmaps_without_relevance_can_be_drawn(tmp_path: Path, value: float) -> None:
    panels = draw(tmp_path, small_set(original=np.full((2, 8, 8), value)))
    told = [text.get_text() for axes in panels for text in axes.texts]
    assert told == (["not finite"] * 2 if math.isnan(value) else [])


def test_pyplot_is_not_touched(make_run: MakeRun) -> None:
    draw_tradeoff(load_results(make_run()))
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize(
    ("told", "words"), [(None, "LRP (epsilon"), ("lrp", "LRP (epsilon"), ("gradient x input", "Gradient x input: red")]
)
def test_the_caption_names_the_explanation_that_was_used(told: str | None, words: str) -> None:
    results = replace(EMPTY, heatmaps=small_set(original=np.ones((2, 8, 8))), meta={"explanation": told})
    drawing = draw_heatmaps(results)
    assert drawing is not None
    assert drawing.caption.startswith(words)
    assert ("LRP" in drawing.alt + drawing.caption) == words.startswith("LRP")
    assert "green outline" in drawing.caption


def test_no_outline_is_promised_where_nobody_knows_the_place() -> None:
    maps = small_set(original=np.ones((2, 8, 8)), masks=np.zeros((2, 8, 8), dtype=bool))
    drawing = draw_heatmaps(replace(EMPTY, heatmaps=maps))
    assert drawing is not None
    assert "outline" not in drawing.alt + drawing.caption
