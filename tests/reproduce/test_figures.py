"""What is drawn, read back from matplotlib's own objects."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

from hansfree.errors import OptionError
from hansfree.report.figures import Drawing
from hansfree.report.reading import HeatmapSet
from hansfree.reproduce.aggregate import SubjectKey
from hansfree.reproduce.figures import (
    StrengthMaps,
    draw_alignments,
    draw_biases,
    draw_cav_types,
    draw_changes,
    draw_epochs,
    draw_extremes,
    draw_hidden_bits,
    draw_localisation,
    draw_method_heatmaps,
    draw_scatter,
    draw_strength_curves,
    draw_targets,
    draw_times,
    lowest_bits,
    panel_grid,
    panel_titles,
)
from tests.reproduce.examples import BRIGHT, RESNET, VGG, cav_row, path, row, scored

OF_ROWS = [
    draw_alignments, draw_cav_types, draw_changes, draw_epochs, draw_scatter, draw_strength_curves, draw_targets,
    draw_times,
]  # fmt: skip
CURVE = {0.1: (0.9, 0.5), 1.0: (0.9, 0.7), 10.0: (0.85, 0.8)}


def axes_of(drawing: Drawing | None) -> list:
    assert drawing is not None
    assert drawing.alt
    assert drawing.caption
    drawing.figure.savefig(io.BytesIO(), dpi=30)  # warnings are errors: layouts and contours warn late
    return drawing.figure.axes


def legend_of(drawing: Drawing | None) -> list[str]:
    assert drawing is not None
    return [text.get_text() for legend in drawing.figure.legends for text in legend.get_texts()]


def pictures(n: int, *, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 8, 8, channels), dtype=np.uint8)


def maps(*names: str, n: int = 1, **given: np.ndarray) -> HeatmapSet:
    masks = np.zeros((n, 8, 8), dtype=bool)
    masks[:, 2:4, 2:6] = True
    rng = np.random.default_rng(1)
    return HeatmapSet(pictures(n), masks, {name: rng.normal(size=(n, 8, 8)) for name in names} | given)


@pytest.mark.parametrize("draw", OF_ROWS)
@pytest.mark.parametrize("rows", [[], scored("vanilla", flip_rate=0.5), scored("rr-clarc", accuracy_clean=math.nan)])
def test_nothing_to_draw_is_no_figure(draw, rows) -> None:
    assert draw({}) is None
    assert draw({VGG: rows}) is None


def test_panels_are_named_by_what_tells_them_apart() -> None:
    assert panel_titles([VGG]) == {VGG: VGG.title}
    assert panel_titles([VGG, RESNET]) == {VGG: "vgg16", RESNET: "resnet18"}
    assert panel_titles([VGG, BRIGHT, RESNET])[BRIGHT] == "vgg16 · brightness"


@pytest.mark.parametrize(("models", "artifacts", "columns"), [(1, 1, 1), (3, 1, 3), (3, 4, 4), (2, 2, 2), (1, 5, 3)])
def test_a_row_of_panels_is_a_model_where_it_fits(models: int, artifacts: int, columns: int) -> None:
    keys = [SubjectKey("d", str(artifact), str(model)) for model in range(models) for artifact in range(artifacts)]
    _, panels = panel_grid(keys)
    assert len(panels) == models * artifacts
    assert {axes.get_subplotspec().get_gridspec().ncols for axes in panels} == {columns}


def test_every_bias_is_a_row_of_pairs() -> None:
    grid = axes_of(draw_biases({"timestamp": (pictures(2), pictures(2)), "lsb": (pictures(1, channels=1),) * 2}))
    assert len(grid) == 2 * 4
    assert sum(bool(axes.images) for axes in grid) == 4 + 2
    assert [axes.get_title() for axes in grid[:4]] == ["clean", "biased"] * 2
    assert [grid[0].get_ylabel(), grid[4].get_ylabel()] == ["timestamp", "lsb"]
    assert draw_biases({}) is draw_biases({"none": (pictures(0), pictures(0))}) is None


def test_names_of_biases_have_a_line_per_word_and_long_ones_are_small() -> None:
    pair = (pictures(1), pictures(1))
    grid = axes_of(draw_biases({"synthetic · timestamp": pair, f"synthetic · {'x' * 28}": pair}))
    assert grid[0].get_ylabel() == "synthetic\ntimestamp"
    assert [axes.yaxis.label.get_fontsize() for axes in grid[::2]] == [9.0, 4.5]


@pytest.mark.parametrize(("bits", "is_unseen"), [(3, True), (4, False)])
def test_an_attack_on_few_bits_is_said_to_be_invisible(bits: int, is_unseen: bool) -> None:
    drawing = draw_hidden_bits(pictures(1), pictures(1), bits=bits)
    assert drawing is not None
    assert ("invisible" in drawing.caption) is is_unseen
    assert f"he last {bits} bits" in drawing.caption


def test_hidden_bits_are_stretched_to_the_full_range() -> None:
    image = np.array([[[0b10100000], [0b10100011], [0b10100111]]], dtype=np.uint8)
    np.testing.assert_array_equal(lowest_bits(image, 3).ravel(), [0, round(3 * 255 / 7), 255])
    np.testing.assert_array_equal(lowest_bits(image, 8), image)


def test_hidden_bits_stand_beside_the_images() -> None:
    clean, attacked = pictures(2), pictures(2) | np.uint8(7)
    grid = axes_of(draw_hidden_bits(clean, attacked, bits=3))
    assert [axes.get_title() for axes in grid[:4]] == [
        "clean",
        "attacked",
        "last 3 bits, clean",
        "last 3 bits, attacked",
    ]
    np.testing.assert_array_equal(grid[4].images[0].get_array(), clean[1])
    assert (grid[7].images[0].get_array() == 255).all()
    assert draw_hidden_bits(pictures(0), pictures(0), bits=3) is None
    with pytest.raises(OptionError, match="1 to 8 bits"):
        draw_hidden_bits(clean, attacked, bits=9)


def test_extremes_are_ranked_and_nobody_stands_in_both_rows() -> None:
    images = pictures(6)
    drawing = draw_extremes(np.array([0.2, 0.9, math.nan, 0.5, -0.1, 0.4]), lambda i: images[i], each=6)
    grid = axes_of(drawing)
    assert [axes.get_title() for axes in grid] == ["s = 0.90", "s = 0.50", "s = -0.10", "s = 0.20"]
    np.testing.assert_array_equal(grid[2].images[0].get_array(), images[4])
    assert draw_extremes(np.array([math.nan, 0.3]), lambda i: images[i]) is None


def test_the_heatmap_panel_has_the_papers_order_and_says_what_is_not_there() -> None:
    drawing = draw_method_heatmaps({VGG: maps("rr-clarc", "vanilla", "rrr", n=2), RESNET: maps("vanilla")})
    grid = axes_of(drawing)
    assert [axes.get_title() for axes in grid[:4]] == ["input", "Vanilla", "RRR", "RR-ClArC"]
    assert len(grid) == 3 * 4
    assert drawing is not None
    assert "the biased class" in drawing.caption
    assert "No model: " in drawing.caption
    whole = draw_method_heatmaps({VGG: maps("vanilla")})
    assert whole is not None
    assert "No model" not in whole.caption
    assert [text.get_text() for axes in grid for text in axes.texts] == ["no model"] * 2
    assert [axes.get_ylabel() for axes in grid[::4]] == ["vgg16", "", "resnet18"]
    limits = [axes.images[0].get_clim() for axes in grid[1:4]]
    assert len(set(limits)) == 1
    assert limits[0][0] == -limits[0][1]
    assert draw_method_heatmaps({}) is draw_method_heatmaps({VGG: maps(n=1)}) is None


def test_cav_heatmaps_have_scales_of_their_own() -> None:
    flat = {"signal": np.ones((1, 8, 8)), "svm": 10 * np.ones((1, 8, 8)), "ridge": np.zeros((1, 8, 8))}
    grid = axes_of(draw_localisation({VGG: maps(**flat, lasso=np.full((1, 8, 8), math.nan))}))
    assert [axes.get_title() for axes in grid] == ["input", "signal", "svm", "ridge", "lasso"]
    assert [axes.images[0].get_clim()[1] for axes in grid[1:4]] == [1, 10, 1]
    assert grid[4].texts[0].get_text() == "not finite"


def test_alignment_bars_are_the_scores() -> None:
    rows = [
        cav_row(name, metric, value)
        for name, values in {"signal": (0.7, 0.95), "svm": (0.2, 0.3)}.items()
        for metric, value in zip(("alignment_sample", "alignment_mean"), values)
    ]
    drawing = draw_alignments({VGG: rows, RESNET: rows[:3], BRIGHT: []})
    panels = axes_of(drawing)
    assert [axes.get_title() for axes in panels] == ["vgg16", "resnet18"]
    assert [round(bar.get_height(), 3) for bar in panels[0].patches] == [0.7, 0.2, 0.95, 0.3]
    assert [round(bar.get_height(), 3) for bar in panels[1].patches] == [0.7, 0.2, 0.95]
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["signal", "svm"]
    assert len(legend_of(drawing)) == 2


def test_the_scatter_shows_every_strength_and_marks_the_chosen() -> None:
    rows = [*path("rr-clarc", CURVE, chosen=10.0), *scored("vanilla", accuracy_clean=0.9, accuracy_biased=0.4)]
    rows += [row("rr-clarc", f"accuracy_{p}", v, seed=1, strength=10.0) for p, v in (("clean", 0.87), ("biased", 0.9))]
    drawing = draw_scatter({VGG: rows, RESNET: rows})
    panels = axes_of(drawing)
    assert len(panels) == 2
    assert legend_of(drawing) == ["Vanilla", "RR-ClArC"]
    large = {line.get_label(): line.get_xydata() for line in panels[0].lines if line.get_markersize() == 9}
    np.testing.assert_allclose(large["RR-ClArC"], [[0.86, 0.85]])  # the mean of two seeds
    (small,) = (line.get_xydata() for line in panels[0].lines if line.get_markersize() == 4.5)
    np.testing.assert_allclose(small, [[0.9, 0.5], [0.9, 0.7]])


def test_changes_are_bars_in_points_by_group() -> None:
    rows = [
        row("a-clarc", "accuracy_change", v, group=g) for g, v in (("selected", -0.04), ("random", 0.01), ("all", 0.0))
    ]
    rows += [row("rr-clarc", "accuracy_change", -0.01, group="selected", target="3")]
    drawing = draw_changes({VGG: rows, RESNET: rows[:1], BRIGHT: []})
    panels = axes_of(drawing)
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["A-ClArC", "RR-ClArC (class 3)"]
    assert [round(bar.get_width(), 6) for bar in panels[0].patches] == [-4, -1, 1, 0]
    assert len(panels[1].patches) == 1
    assert legend_of(drawing) == ["selected classes", "random classes", "all classes"]


def test_cav_types_are_bars_with_vanilla_as_a_line() -> None:
    rows = [
        r
        for cav, pair in (("signal", (0.9, 0.8)), ("svm", (0.9, 0.6)))
        for r in path("rr-clarc", {1.0: pair}, chosen=1.0, cav=cav)
    ]
    drawing = draw_cav_types({VGG: [*rows, *scored("vanilla", accuracy_biased=0.4)], RESNET: rows[2:]})
    panels = axes_of(drawing)
    assert [bar.get_height() for bar in panels[0].patches] == [0.8, 0.6]
    assert [text.get_text() for text in panels[0].texts] == ["80", "60"]
    assert [bar.get_x() + bar.get_width() / 2 for bar in panels[1].patches] == [pytest.approx(1)]  # below its name
    assert legend_of(drawing) == ["Vanilla"]


def test_strength_curves_have_their_heatmaps_below() -> None:
    rows = [*path("rr-clarc", {0.0: (0.9, 0.4), **CURVE}, chosen=10.0), *path("rrr", CURVE, chosen=1.0)]
    shown = maps("x")
    strip = {VGG: StrengthMaps(shown.images[0], shown.masks[0], {10.0: np.ones((8, 8)), 0.1: np.ones((8, 8))})}
    drawing = draw_strength_curves({VGG: rows, RESNET: rows}, maps=strip)
    panels = axes_of(drawing)
    assert [axes.get_title() for axes in panels] == ["input", "0.1", "10", "vgg16", "resnet18"]
    biased, clean = panels[3].lines[:2]
    np.testing.assert_allclose(biased.get_xydata(), [(s, pair[1]) for s, pair in CURVE.items()])
    np.testing.assert_allclose(clean.get_ydata(), [pair[0] for pair in CURVE.values()])
    (mark,) = (line for line in panels[3].lines if line.get_markersize() == 10)
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (10.0, 0.8)
    assert panels[3].get_xscale() == "log"
    assert legend_of(drawing) == ["with artifact", "without"]


def test_strength_curves_have_vanilla_as_lines() -> None:
    rows = [*path("rr-clarc", CURVE, chosen=1.0), *scored("vanilla", accuracy_clean=0.9, accuracy_biased=0.4)]
    drawing = draw_strength_curves({VGG: rows})
    (axes,) = axes_of(drawing)
    levels = {line.get_label(): line.get_ydata()[0] for line in axes.lines if "Vanilla" in line.get_label()}
    assert levels == {"Vanilla, with artifact": 0.4, "Vanilla, without": 0.9}
    assert set(levels) <= set(legend_of(drawing))


def test_targets_are_lines_and_norms_are_panels() -> None:
    rows = [
        r
        for target, norm in (("random", "squared"), ("all", "squared"), ("random", "cosine"))
        for r in path("rr-clarc", CURVE, chosen=1.0, target=target, norm=norm)
    ]
    drawing = draw_targets({VGG: rows})
    panels = axes_of(drawing)
    assert [axes.get_title() for axes in panels] == ["squared", f"{VGG.title}\ncosine", "", ""]
    assert [len(axes.lines) for axes in panels] == [2, 1, 2, 1]
    np.testing.assert_allclose(panels[1].lines[0].get_ydata(), [0.5, 0.7, 0.8])
    np.testing.assert_allclose(panels[3].lines[0].get_ydata(), [0.9, 0.9, 0.85])
    assert legend_of(drawing) == ["random", "all"]
    assert len(axes_of(draw_targets({VGG: rows, RESNET: rows}))) == 8


def test_the_expected_target_is_seen_above_the_random_one() -> None:
    rows = [r for target in ("expected", "random") for r in path("rr-clarc", CURVE, chosen=1.0, target=target)]
    expected, random = axes_of(draw_targets({VGG: rows}))[0].lines
    assert (expected.get_label(), expected.get_linestyle()) == ("expected", "--")
    assert expected.get_zorder() > random.get_zorder()


def test_epochs_are_curves_of_validation_rows() -> None:
    rows = [
        row("rr-clarc", f"balanced_accuracy_{part}", epoch / 10, strength=strength, epoch=epoch, split="val", chosen=0)
        for part in ("clean", "biased")
        for strength in (1.0, 10.0)
        for epoch in (2, 1, 3)
    ]
    drawing = draw_epochs({VGG: rows, RESNET: [*rows, *path("rr-clarc", CURVE, chosen=1.0)], BRIGHT: []})
    panels = axes_of(drawing)
    assert len(panels) == 4
    assert all(len(axes.lines) == 2 for axes in panels)
    np.testing.assert_allclose(panels[0].lines[0].get_xydata(), [[1, 0.1], [2, 0.2], [3, 0.3]])
    assert legend_of(drawing) == ["strength 1", "strength 10"]
    assert drawing is not None
    assert drawing.caption.startswith("Balanced accuracy on the validation images")


@pytest.mark.parametrize(("step", "decimals"), [(0.1, 0), (0.001, 1)])
def test_ticks_of_a_narrow_axis_differ(step: float, decimals: int) -> None:
    rows = [
        row("rr-clarc", f"accuracy_{part}", 0.5 + step * epoch, strength=1.0, epoch=epoch, split="val", chosen=0)
        for part in ("clean", "biased")
        for epoch in (1, 2, 3)
    ]
    labels = [label.get_text() for label in axes_of(draw_epochs({VGG: rows}))[0].get_yticklabels()]
    assert len(set(labels)) == len(labels) > 1
    assert max(len(label.rstrip("%").partition(".")[2]) for label in labels) >= decimals
    assert any("." in label for label in labels) is (decimals > 0)


def test_of_many_strengths_a_few_are_drawn_and_both_ends_are_among_them() -> None:
    rows = [
        row("rr-clarc", f"accuracy_{part}", 0.5, strength=float(strength), epoch=1, split="val")
        for part in ("clean", "biased")
        for strength in range(1, 23)
    ]
    drawing = draw_epochs({VGG: rows})
    labels = legend_of(drawing)
    assert len(labels) == len(axes_of(drawing)[0].lines) == 7
    assert (labels[0], labels[-1]) == ("strength 1", "strength 22")


def test_times_are_bars_with_their_share_of_vanilla() -> None:
    rows = [row(m, "seconds_per_epoch", v, split=None) for m, v in (("rrr", 20.0), ("vanilla", 2.0), ("rr-clarc", 2.5))]
    (axes,) = axes_of(draw_times({VGG: rows}))
    assert [bar.get_width() for bar in axes.patches] == [2.0, 20.0, 2.5]
    assert [text.get_text() for text in axes.texts] == ["100 %", "1000 %", "125 %"]
    (axes,) = axes_of(draw_times({VGG: rows[:1]}))
    assert [text.get_text() for text in axes.texts] == ["20 s"]
