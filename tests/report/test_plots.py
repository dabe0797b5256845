"""What is drawn, read back from matplotlib's objects, from the SVG and from the images."""

from __future__ import annotations

import base64
import io
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import numpy as np
import pytest
from PIL import Image

from hansfree.cavs import CAV
from hansfree.cavs.diagnostics import diagnose_cav
from hansfree.corrections import Correction, LatentCorrection, RRClArC, along_cavs
from hansfree.evaluation.results import HeatmapSet, Results, Row, load_results
from hansfree.evaluation.verdict import shown_variant
from hansfree.report import describe_diagnosis
from hansfree.report.figures import (
    INK,
    OTHER_STYLE,
    draw_alignment,
    draw_diagnosis,
    draw_strengths,
    new_figure,
    quiet_axes,
    style_of,
)
from hansfree.report.images import Cases, Maps, find_extremes, load_cases, show_direction, show_heatmaps
from hansfree.report.numbers import percent, write_points
from hansfree.report.plots import Plot, draw_classes, draw_effect, draw_tradeoff, make_plot
from tests.cavs.samples import gaussian
from tests.report.conftest import (
    CAVS,
    CHOSEN,
    CLASSES,
    META,
    POOR,
    SELECTION,
    STRENGTHS,
    TAKEN,
    MakeRun,
    World,
    case_arrays,
)

EMPTY = Results(rows=(), meta={}, selection={}, heatmaps=None)
RESULTS = replace(EMPTY, meta=META)


@pytest.mark.parametrize("drawer", [draw_alignment, draw_strengths, draw_tradeoff])
def test_nothing_to_draw_is_no_figure(drawer: Any, make_run: MakeRun) -> None:
    assert drawer(EMPTY) is None
    if drawer is not draw_alignment:
        assert drawer(load_results(make_run(**POOR.parts()))) is None, "the shortcut would look best"


def test_alignment_bars_are_the_scores(make_run: MakeRun) -> None:
    results = load_results(make_run())
    drawing = draw_alignment(results)
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(CAVS)
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers if hasattr(bars, "patches")]
    np.testing.assert_allclose(widths, np.array(list(CAVS.values())).T)
    assert "signal, s\N{COMBINING MACRON}, of the mean: 0.96" in drawing.alt
    rows = tuple(replace(row, value=math.nan) if row.method == "cav:lasso" else row for row in results.rows)
    without = draw_alignment(replace(results, rows=rows))
    assert without is not None
    assert "lasso" not in without.alt


def test_the_curves_run_over_the_strengths(make_run: MakeRun) -> None:
    def change(rows: list[Row]) -> list[Row]:
        paths = [row for row in rows if row.method == "rr-clarc"]
        return [*rows, *(replace(row, method=f"rr-clarc@{cav}") for cav in ("svm", "ridge", "lasso") for row in paths)]

    drawing = draw_strengths(load_results(make_run(change=change)))
    assert drawing is not None
    panels = {axes.get_title().replace("\n", " "): axes for axes in drawing.figure.axes}
    along = {f"RR-ClArC along {cav}" for cav in ("svm", "ridge", "lasso")}
    assert set(panels) == {"RRR", "RR-ClArC", *along}, "the places of a second row that are left over are empty"
    np.testing.assert_allclose(panels["RR-ClArC"].lines[0].get_xdata(), [s for s in STRENGTHS["rr-clarc"] if s != 1e5])
    crosses = [line for line in panels["RR-ClArC"].lines if line.get_marker() == "x"]
    np.testing.assert_allclose(crosses[0].get_xdata(), [1e5])
    dotted = [line for line in panels["RRR"].lines if line.get_linestyle() == ":"]
    assert dotted[0].get_xdata()[0] == TAKEN["rrr"]
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize(("size", "n_artifact", "wrong"), [(8.0, 30, 2), (0.0, 12, 0), (1.0, 4, 0)])
def test_the_panels_show_the_diagnosis(tmp_path: Path, size: float, n_artifact: int, wrong: int) -> None:
    X, has_artifact, _ = gaussian(n_artifact, 30, 8, size=size)
    has_artifact[np.flatnonzero(has_artifact)[:wrong]] = False
    found = diagnose_cav(X, has_artifact)
    drawing = draw_diagnosis(found)
    drawing.figure.savefig(tmp_path / "drawn.png")  # warnings are errors: the layout warns late
    curve, agreement, scores = drawing.figure.axes
    points = curve.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points, [(point.n, point.angle) for point in found.curve])
    assert [text.get_text() for text in agreement.texts][:2] == ["1.00", f"{found.agreement.cosines[0][1]:.2f}"]
    if wrong:
        (marks,) = (each for each in scores.collections if each.get_label() == "listed without it, looks wrong")
        np.testing.assert_allclose(marks.get_offsets()[:, 0], [mark.score for mark in found.suspect_labels])
    assert describe_diagnosis(found) in drawing.alt
    assert "can detect a confounder" in drawing.caption


def test_methods_have_styles_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Correction, "_members", dict(Correction._members))
    for number in range(22):
        type(f"New{number}", (RRClArC,), {}, name=f"new-{number}")
    styles = [style_of(name) for name in (*CHOSEN, *(f"new-{number}" for number in range(22)))]
    assert len(set(styles)) == len(styles)
    assert style_of("other") == style_of("other@svm") == OTHER_STYLE


def test_along_a_further_cav_a_method_keeps_its_colour_and_takes_the_cavs_marker() -> None:
    styles = [style_of(name) for name in along_cavs(list(LatentCorrection.members()), list(CAV.members()))]
    assert len(set(styles)) == len(styles)
    assert style_of("rr-clarc@svm") == (style_of("rr-clarc")[0], style_of("p-clarc@svm")[1])


def points_of(svg: Element) -> list[Element]:
    return [each for each in svg.iter("g") if each.get("class") == "point"]


def read(plot: Plot | None) -> tuple[Element, list[str]]:
    """Return the drawing and the labels of its points."""
    assert plot is not None
    svg = fromstring(plot.svg)
    return svg, [str(each.get("aria-label")).replace("\xa0", " ") for each in points_of(svg)]


def texts_of(svg: Element) -> list[str]:
    return [text.text or "" for text in svg.iter("text")]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_every_strength_is_a_point_and_the_chosen_are_marked(make_run: MakeRun, lost: int) -> None:
    """Strengths that collapsed do not set the axes."""
    collapsed = STRENGTHS["rr-clarc"][5 : 5 + lost]
    kept = (1.0, TAKEN["rr-clarc"], *collapsed, 1e5)

    def change(rows: list[Row]) -> list[Row]:
        rows = [row for row in rows if row.method != "rr-clarc" or row.strength in kept]
        return [replace(r, value=0.25) if r.method == "rr-clarc" and r.strength in collapsed else r for r in rows]

    plot = draw_tradeoff(load_results(make_run(change=change)))
    svg, labels = read(plot)
    assert plot is not None
    assert "RR-ClArC, strength 10 (chosen): 91.6 % without the artifact, 87.1 % with it" in labels
    assert "P-ClArC: 88.0 % without the artifact, 82.2 % with it" in labels
    assert len(labels) == 2 + len(STRENGTHS["rrr"]) + len(CHOSEN) - len(STRENGTHS), "without what diverged"
    assert texts_of(svg)[-len(CHOSEN) :] == [
        *("Original", "Vanilla", "RRR", "P-ClArC", "A-ClArC", "RR-ClArC", "Clean-trained")
    ]
    assert ("" if not lost else f" {lost} strength") in plot.caption
    assert ("outside the axes" in plot.caption) == (lost > 0)


@pytest.mark.parametrize("biased", [0.90, 0.20])
def test_the_grey_line_is_spoken_of_where_it_is_drawn(make_run: MakeRun, biased: float) -> None:
    results = load_results(make_run())
    key = "balanced_accuracy_biased"
    rows = tuple(replace(row, value=biased) if row.metric == key else row for row in results.rows)
    plot = draw_tradeoff(replace(results, rows=rows))
    assert plot is not None
    assert ("#aaaaaa" in plot.svg) == (biased > 0.8)
    assert ("On the grey line" in plot.caption) == (biased > 0.8)


def test_the_change_of_every_class_is_drawn(make_run: MakeRun) -> None:
    results = load_results(make_run(**World().parts()))
    shown = shown_variant(results)
    plot = draw_classes(results, shown)
    svg, _ = read(plot)
    assert plot is not None
    words = texts_of(svg)
    changes = {}
    for place, name in enumerate(CLASSES):
        before, after = (results.of_classes(each, "sensitivity_clean")[place] for each in (results.original, shown))
        changes[name] = after.value - before.value
        assert f"{percent(before.value)} → {percent(after.value)}" in words
        assert f"{name} without the artifact {write_points(changes[name])} points" in str(svg.get("aria-label"))
    found = [word for word in words if word in CLASSES][: len(CLASSES)]
    assert [changes[name] for name in found] == sorted(changes.values()), "the largest drop is on top"
    assert draw_classes(results, None) is None


def test_in_the_page_names_are_unique_and_colours_follow_the_theme() -> None:
    svgs = []
    for name in ("one", "two"):
        figure = new_figure(width=3, height=2)
        (axes,) = quiet_axes(figure)
        axes.scatter([0.1, 0.2], [0.3, 0.4], color="#123456", gid="marks")
        axes.bar([0.5], [0.4], hatch="//")
        axes.set_xlabel("share", color=INK)
        plot = make_plot(figure, name, alt=f"<{name}>", points={"marks": ["first", "second"]})
        assert plot.file == make_plot(figure, name, alt="").file, "the same bytes for the same figure"
        svgs.append(fromstring(plot.svg))
    ids = [str(each.get("id")) for svg in svgs for each in svg.iter() if each.get("id")]
    assert len(set(ids)) == len(ids) > 2
    for svg, name in zip(svgs, ("one", "two")):
        assert svg.get("aria-label") == f"<{name}>"
        assert [each.get("aria-label") for each in points_of(svg)] == ["first", "second"]
        assert [each.get("tabindex") for each in points_of(svg)] == ["0", "-1"]
        assert {each.get("href", "")[1:] for each in svg.iter("use")} <= set(ids)
        styles = " ".join(each.get("style", "") for each in svg.iter())
        assert set(re.findall(r"url\(#([^)]+)\)", styles)) <= set(ids)
        assert "var(--line)" in styles
        assert "var(--ink)" in styles
        assert "font-family" not in styles


def load(tmp_path: Path, *, is_paired: bool = True, **arrays: Any) -> Cases:
    np.savez(tmp_path / "cases.npz", **case_arrays(is_paired=is_paired) | arrays)
    found = load_cases(tmp_path / "cases.npz")
    assert found is not None
    return found


@pytest.mark.parametrize("is_paired", [True, False], ids=["inserted", "natural"])
def test_the_effect_on_each_image(tmp_path: Path, is_paired: bool) -> None:
    assert load_cases(tmp_path / "cases.npz") is None
    cases = load(tmp_path, is_paired=is_paired)
    assert draw_effect(EMPTY, cases, "rr-clarc") is None
    effect = draw_effect(RESULTS, cases, "p-clarc")
    assert effect is not None
    names = [name for name, _ in effect.choices]
    assert set(names) == {*SELECTION, *(["original"] if is_paired else [])}, "before is no correction"
    assert effect.shown == "p-clarc"
    assert effect.still.count("<use") >= 20 * len(names), "the sample, not the extremes"
    assert effect.live.count('class="point"') == 20
    places = np.array(effect.data["methods"]["p-clarc"]["places"])
    order = np.argsort(cases.labels[:20] == 1, kind="stable")  # those of the class are drawn last
    across, up = (values[order] for values in cases.values("p-clarc", "biased_class"))
    for seen, shares in zip(places.T, (across, -up)):  # down is more in pixels
        assert np.corrcoef(seen, shares)[0, 1] > 0.9999 or np.ptp(shares) == 0
    drawn = [[each[0].get("x"), each[0].get("y")] for each in points_of(fromstring(effect.live))]
    np.testing.assert_allclose(np.array(drawn, dtype=float), places, atol=0.1)
    image = effect.data["images"][-1]
    kinds = {"clean", "biased"} if is_paired else {"biased"}
    assert (image["label"], set(image)) == ("melanoma", {"label", *kinds})
    assert all(base64.b64decode(image[kind].partition(",")[2]).startswith(b"\xff\xd8") for kind in kinds)
    words = effect.data["methods"]["vanilla"]["words"][0]
    assert [word.endswith("%") for word in words] == [True, True, False]
    assert words[2].startswith("answer ")
    assert ("artifact does nothing" in effect.caption) == is_paired
    named = replace(RESULTS, meta=META | {"class_names": ["<b>", "<script>", "c", "d"]})
    escaped = draw_effect(named, cases, "rr-clarc")
    assert escaped is not None
    assert "<script>" not in escaped.live + escaped.still


def test_the_extremes_are_the_largest_changes_both_ways(tmp_path: Path) -> None:
    before, after = np.full(24, 0.5, np.float32), np.full(24, 0.5, np.float32)
    after[[3, 7, 11]] = [0.9, 0.7, 0.504]  # the last is too small to count
    after[[4, 8]] = [0.1, 0.3]
    cases = load(
        tmp_path,
        **{"true_class_biased/original": before, "true_class_biased/rr-clarc": after},
        **{"predicted_biased/original": np.full(24, 1), "predicted_biased/rr-clarc": np.arange(24) % 3 % 2},
        **{"counts/rr-clarc": np.array([800, 2, 2])},
    )
    found = find_extremes(RESULTS, cases, "rr-clarc")
    assert found is not None
    assert [case.note for case in found.best] == ["50.0\xa0% → 90.0\xa0%", "50.0\xa0% → 70.0\xa0%"]
    assert [case.note for case in found.worst] == ["50.0\xa0% → 10.0\xa0%", "50.0\xa0% → 30.0\xa0%"]
    assert [case.text for case in found.best] == ["melanoma → naevus", "stays melanoma"]
    assert [case.title for case in found.worst] == ["naevus", "naevus"]  # images 4 and 8
    assert "Of 800 test images" in found.summary
    assert find_extremes(RESULTS, cases, "my-way") is None


def small_set(*, masks: np.ndarray | None = None, side: int = 8, **relevance: np.ndarray) -> HeatmapSet:
    rectangle = np.zeros((2, side, side), dtype=bool)
    rectangle[:, 2:6, 2:6] = True
    images = np.zeros((2, side, side, 3), dtype=np.uint8)
    return HeatmapSet(images, rectangle if masks is None else masks, relevance)


def shown(maps: HeatmapSet, method: str = "rr-clarc", **meta: Any) -> Maps:
    found = show_heatmaps(replace(EMPTY, heatmaps=maps, meta=meta), method)
    assert found is not None
    return found


def pixels(source: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGB"))


ONES = np.ones((2, 8, 8))


def test_heatmaps_stand_in_the_order_of_the_table(make_run: MakeRun) -> None:
    assert show_heatmaps(EMPTY, "rr-clarc") is None
    assert show_direction(EMPTY) is None
    assert show_direction(replace(EMPTY, heatmaps=small_set(original=ONES))) is None
    maps = small_set(vanilla=ONES, original=ONES)
    found = show_heatmaps(replace(load_results(make_run()), heatmaps=maps), "vanilla")
    assert found is not None
    assert [cell.title for cell in found.rows[0]] == ["test image 1", "Original", "Vanilla"]
    assert (found.choices, found.shown) == ((("vanilla", "Vanilla"),), "vanilla")
    assert shown(maps, "rr-clarc").shown == "vanilla", "a method without heatmaps is not the first choice"
    assert shown(small_set(original=ONES), "rr-clarc").shown == ""


def test_all_methods_share_one_symmetric_scale() -> None:
    maps = {"original": 0.1 * ONES, "vanilla": ONES, "rrr": -ONES, "a-clarc": math.nan * ONES}
    row = shown(small_set(masks=np.zeros((2, 8, 8), dtype=bool), **maps)).rows[0]
    assert [cell.method for cell in row if not cell.source] == ["a-clarc"]
    colours = {cell.method: pixels(cell.source)[0, 0].astype(int) for cell in row[1:] if cell.source}
    assert colours["vanilla"][0] > colours["vanilla"][2] + 60, "the strong one is dark red"
    assert colours["rrr"][2] > colours["rrr"][0] + 60
    assert colours["original"].min() > 200, "the weak one is pale"


@pytest.mark.parametrize(("mask", "n_green"), [(None, 12), (True, 0), (False, 0)])
def test_the_mask_is_outlined_unless_it_fills_the_image_or_is_unknown(mask: bool | None, n_green: int) -> None:
    found = shown(small_set(masks=None if mask is None else np.full((2, 8, 8), mask), original=ONES))
    is_green = (pixels(found.rows[0][1].source) == (0, 158, 115)).all(axis=2)
    assert is_green.sum() == n_green, "the rim of four by four pixels"
    assert ("green outline" in found.caption) == (n_green > 0)


def test_the_direction_has_a_scale_of_its_own() -> None:
    maps = replace(small_set(original=100 * ONES), direction=ONES)
    found = show_direction(replace(EMPTY, heatmaps=maps))
    assert found is not None
    assert [cell.title for cell in found.rows[0]] == ["test image 1", "Direction"]
    assert pixels(found.rows[0][1].source)[0, 0, 0] < 160, "the end of its scale"


def test_an_image_says_which_it_is_and_the_caption_what_is_explained() -> None:
    maps = replace(small_set(original=ONES), labels=np.array([1, 0]), ids=np.array([17, 4]))
    meta = {"biased_class": 0, "class_names": ["naevus", "melanoma"], "image_names": {"17": "deep/a.png"}}
    found = shown(maps, **meta)
    assert [row[0].title for row in found.rows] == ["deep/a.png: melanoma", "test image, id 4: naevus"]
    assert found.rows[0][1].alt == "Heatmap of deep/a.png: melanoma, Original"
    assert found.caption.startswith("LRP (epsilon, z+, flat): red pixels speak for “naevus”")
    other = shown(maps, explanation="gradient x input")
    assert other.caption.startswith("Gradient x input: ")
    assert other.legend.endswith("LRP has no rule for some operations of this network.")
    assert "no rule" not in found.legend
