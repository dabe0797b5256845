"""Tables, claims and figures from one synthetic results table; ``golden.md`` holds the expected Markdown.

Run with HANSFREE_WRITE_GOLDEN=1 to write the file again after an intended change.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.evaluation.results import HeatmapSet, Row
from hansfree.report.numbers import MISSING
from hansfree_paper import figures, tables
from hansfree_paper.aggregate import (
    CACHED_SECONDS,
    CHANGE,
    SECONDS,
    Average,
    Facts,
    Finding,
    SubjectKey,
    average,
    write_average,
)
from hansfree_paper.claims import write_claims
from hansfree_paper.dataset import Published
from hansfree_paper.runner import write_settings
from tests.paper.examples import BRIGHT, RESNET, VGG, cav_row, path, row, scored

GOLDEN = Path(__file__).parent / "golden.md"
PUBLISHED = Published(
    scores={
        ("vgg16", method, metric): score
        for method, biased, tcav in (("vanilla", 0.498, 0.858), ("rrr", 0.499, 0.857))
        for metric, score in (
            ("accuracy_clean", (0.788, 0.012)),
            ("accuracy_biased", (biased, 0.014)),
            ("tcav_positions", (tcav, 0.001)),
            ("tcav_sensitivity", (0.00558, 0.00001)),
        )
    },
    strengths={("vgg16", "rr-clarc"): 500},
    seconds={("vgg16", "vanilla"): (200, 2), ("vgg16", "rr-clarc"): (250, 4)},
)
CURVE = {0.1: (0.9, 0.5), 1.0: (0.9, 0.7), 10.0: (0.85, 0.8)}


def epochs() -> list[Row]:
    return [
        row(
            "rr-clarc",
            f"accuracy_{part}",
            0.5 + 0.01 * epoch + 0.001 * strength,
            epoch=epoch,
            strength=strength,
            split="val",
        )
        for strength in (0.1, 1.0, 10.0)
        for epoch in range(4)
        for part in ("clean", "biased")
    ]


def changes(method: str, values: tuple[float, float, float], **about: object) -> list[Row]:
    groups = ("selected", "random", "all")
    return [row(method, f"{CHANGE}_{group}", value, **about) for group, value in zip(groups, values)]


def of_subject(lift: float) -> list[Row]:
    """Return one subject: every kind of score, two seeds of RR-ClArC, a method at chance, one that failed."""
    return [
        *scored("original", accuracy_clean=0.95, accuracy_biased=0.99),
        *scored("vanilla", accuracy_clean=0.9, accuracy_biased=0.5, tcav_positions=0.9, tcav=0.95),
        *scored("vanilla", balanced_accuracy_clean=0.9, balanced_accuracy_biased=0.5, flip_rate=0.4),
        *scored("p-clarc", accuracy_clean=0.8, accuracy_biased=0.795, tcav_positions=0.4, tcav=0.3),
        *scored("p-clarc", balanced_accuracy_clean=0.25, balanced_accuracy_biased=0.25, flip_rate=0.0),
        *scored("rr-clarc", accuracy_clean=[0.89, 0.9], accuracy_biased=[0.79 + lift, 0.81 + lift]),
        *scored("rr-clarc", tcav_positions=[0.52, 0.54], tcav=0.5, balanced_accuracy_biased=0.8 + lift, flip_rate=0.1),
        *path("rrr", {1.0: (0.1, 0.1)}, chosen=-1.0),
        *path("rr-clarc", CURVE, chosen=10.0),
        *path("rr-clarc", CURVE, chosen=1.0, cav="ridge"),
        *path("rr-clarc", CURVE, chosen=1.0, target="random", norm="absolute"),
        *scored("clean-trained", accuracy_clean=0.96, accuracy_biased=0.95),
        *(cav_row(cav, metric, value) for cav, value in (("signal", 0.9), ("ridge", 0.4)) for metric in
          ("alignment_sample", "alignment_mean", "cav_auc")),
        cav_row("lasso", "alignment_mean", math.nan),
        *epochs(),
        *changes("a-clarc", (-0.2, 0.0, -0.01)),
        *changes("rr-clarc", (-0.1, 0.01, 0.0)),
        *changes("rr-clarc", (0.0, 0.02, 0.0), target="1"),
        *(row(method, SECONDS, value + turn / 10, seed=turn) for method, value in (("vanilla", 2.0), ("rr-clarc", 2.5))
          for turn in range(3)),
        *(row(method, CACHED_SECONDS, value) for method, value in (("vanilla", 0.1), ("rr-clarc", 0.3))),
        row("vanilla", "accuracy_clean", 0.7, group=0, artifact="ruler", n=40),
    ]  # fmt: skip


PAIRED = {("rr-clarc", "vanilla"): {"accuracy_clean": (-0.01, 0.02), "accuracy_biased": (0.29, 0.03)}}
REASONS = {"rrr": "no strength is admissible: diverged", "rr-clarc": "best balanced accuracy"}
FINDINGS = [
    Finding(
        key=VGG,
        rows=of_subject(0.0),
        facts=Facts(
            published=PUBLISHED,
            departures=("random weights", "3 epochs"),
            majority_rate=0.6,
            chance_level=0.25,
            class_names=("nevus", "melanoma"),
            reasons=REASONS,
            paired=PAIRED,
        ),
    ),
    Finding(key=RESNET, rows=of_subject(0.02), facts=Facts(chance_level=0.25, grid="paper")),
    Finding(key=BRIGHT, rows=of_subject(-0.25)),
]
WRITERS: dict[str, Callable[[Sequence[Finding]], str]] = {
    "table1": tables.write_table1,
    "table1 of two datasets": lambda findings: tables.write_table1(
        [replace(found, key=key) for found, key in zip(findings, (SubjectKey("celeba", "collar", "vgg16"), RESNET))]
    ),
    "details": tables.write_details,
    "differences": tables.write_differences,
    "no differences": lambda findings: tables.write_differences(findings[1:]),
    "strengths": tables.write_strengths,
    "times": tables.write_times,
    "changes": tables.write_changes,
    "alignments": tables.write_alignments,
    "variants": tables.write_variants,
    "path": tables.write_path,
    "epochs": tables.write_epochs,
    "groups": tables.write_groups,
    "claims": lambda findings: write_claims(findings, "all classes") + write_claims(findings, "selected classes"),
    "settings": lambda findings: write_settings(
        {VGG: {"size": "32 px", "layer": "a"}, RESNET: {"size": "32 px", "layer": "b"}, BRIGHT: {"size": "32 px"}}
    ),
}


def test_golden_markdown() -> None:
    text = "\n".join(f"# {name}\n\n{write(FINDINGS).strip()}\n" for name, write in WRITERS.items())
    if os.environ.get("HANSFREE_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


# Averages


def found_in(rows: list[Row], **facts: Any) -> Finding:
    return Finding(key=VGG, rows=rows, facts=Facts(**facts))


scores = st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 0.2)), min_size=2, max_size=6)


@given(scores)
def test_the_mean_has_two_errors(pairs: list[tuple[float, float]]) -> None:
    rows = [row("vanilla", "accuracy_clean", value, stderr=e, seed=seed) for seed, (value, e) in enumerate(pairs)]
    (found,) = average(rows, lambda r: r.method).values()
    values, errors = zip(*pairs)
    assert found.value == pytest.approx(mean(values))
    assert found.spread == pytest.approx(stdev(values), abs=1e-12)
    assert found.stderr == pytest.approx(math.sqrt(mean(e * e for e in errors)))
    assert found.error == pytest.approx(math.sqrt(mean(e * e for e in errors) + stdev(values) ** 2 / len(values)))


def test_only_chosen_final_scores_of_all_test_images_count() -> None:
    rows = [
        *path("rr-clarc", {1.0: (0.9, 0.5), 10.0: (0.8, 0.7)}, chosen=10.0),
        row("rr-clarc", "accuracy_biased", 0.1, split="val", strength=10.0),
        row("rr-clarc", "accuracy_biased", 0.2, epoch=3, strength=10.0),
        row("rr-clarc", "accuracy_biased", 0.3, group=1, strength=10.0),
        cav_row("signal", "cav_auc", 0.4),
    ]
    ((variant, found),) = found_in(rows).chosen.items()
    assert (variant.method, variant.cav, variant.seed) == ("rr-clarc", "signal", None)
    assert {metric: mean.value for metric, mean in found.items()} == {"accuracy_clean": 0.8, "accuracy_biased": 0.7}
    assert found["accuracy_biased"].strength == 10.0


@pytest.mark.parametrize("order", [("rr-clarc", "a-clarc"), ("a-clarc", "rr-clarc")])
def test_a_paired_lead_is_of_the_means_with_the_errors_of_pairs_and_seeds(order: tuple[str, str]) -> None:
    rows = [*scored("a-clarc", accuracy_biased=[0.7, 0.7]), *scored("rr-clarc", accuracy_biased=[0.8, 0.9])]
    paired, wanted = {order: {"accuracy_biased": (0.1, 0.03)}}, ("rr-clarc", "a-clarc", "accuracy_biased")
    assert found_in(rows, paired=paired).lead(*wanted) == pytest.approx((0.15, math.hypot(0.03, 0.05)))
    assert found_in(rows).lead(*wanted) is None
    assert found_in(rows[:2], paired=paired).lead(*wanted) is None


def test_averages_are_written_with_both_errors() -> None:
    averages = {MISSING: None, "NaN": Average(math.nan, 0.1, None, 1), "87.1": Average(0.871, None, None, 1)}
    averages |= {"87.1 ± 1.2": Average(0.871, 0.012, None, 1), "87.1 ± 1.2 (0.4)": Average(0.871, 0.012, 0.004, 3)}
    for text, found in averages.items():
        assert write_average("accuracy_biased", found) == text


# Figures


def pictures(n: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 8, 8, channels), dtype=np.uint8)


def heatmaps(*names: str) -> HeatmapSet:
    masks = np.zeros((2, 8, 8), dtype=bool)
    masks[:, 2:4, 2:6] = True
    maps = {name: np.random.default_rng(1).normal(size=(2, 8, 8)) for name in names}
    maps[names[0]][1, 0, 0] = np.inf
    return HeatmapSet(pictures(2), masks, maps)


STRENGTHS = figures.StrengthMaps(pictures(1)[0], np.eye(8, dtype=bool), {0.1: np.eye(8), 10.0: -np.eye(8)})
OF_ROWS = {
    "alignment": figures.draw_alignments,
    "cav-types": figures.draw_cav_types,
    "class-specific": figures.draw_changes,
    "epochs": figures.draw_epochs,
    "scatter": figures.draw_scatter,
    "strength": figures.draw_strength_curves,
    "targets": figures.draw_targets,
    "times": figures.draw_times,
}
DRAWERS = {
    **{name: lambda draw=draw: draw(FINDINGS) for name, draw in OF_ROWS.items()},
    "strength with heatmaps": lambda: figures.draw_strength_curves(FINDINGS, maps={VGG: STRENGTHS}),
    "heatmap-panel": lambda: figures.draw_method_heatmaps(
        {VGG: heatmaps("vanilla", "rr-clarc"), RESNET: heatmaps("vanilla")}
    ),
    "localisation": lambda: figures.draw_localisation({VGG: heatmaps("signal", "ridge")}),
    "biases": lambda: figures.draw_biases(
        {"timestamp": (pictures(2), pictures(2)), "collar": (pictures(1, 1),) * 2}, natural={"collar"}
    ),
    "lsb": lambda: figures.draw_hidden_bits(pictures(2), pictures(2) | np.uint8(7), bits=3),
    "extremes": lambda: figures.draw_extremes(
        np.array([0.9, 0.1, math.nan, 0.5]), lambda i: pictures(4)[i], name="extremes", each=2
    ),
}


@pytest.mark.parametrize("name", DRAWERS)
def test_figures_are_drawn(name: str) -> None:
    drawing = DRAWERS[name]()
    assert drawing is not None
    assert drawing.name == name.partition(" ")[0]
    assert drawing.alt
    assert drawing.caption
    drawing.figure.savefig(io.BytesIO(), dpi=30)  # warnings are errors: layouts and contours warn late
    if name in OF_ROWS:
        assert len(drawing.figure.axes) >= len(FINDINGS)


@pytest.mark.parametrize("rows", [[], scored("vanilla", flip_rate=0.5), scored("rr-clarc", accuracy_clean=math.nan)])
@pytest.mark.parametrize("name", OF_ROWS)
def test_nothing_to_draw_is_no_figure(name: str, rows: list[Row]) -> None:
    assert OF_ROWS[name]([]) is None
    assert OF_ROWS[name]([Finding(key=VGG, rows=rows)]) is None


def test_image_figures_need_images() -> None:
    assert figures.draw_biases({}) is None
    assert figures.draw_extremes(np.array([math.nan, 0.5]), lambda i: pictures(2)[i], name="extremes") is None
    assert figures.draw_method_heatmaps({}) is figures.draw_localisation({}) is None
    image = np.array([[[0b10100000], [0b10100011], [0b10100111]]], dtype=np.uint8)
    np.testing.assert_array_equal(figures.lowest_bits(image, 3).ravel(), [0, round(3 * 255 / 7), 255])


@pytest.mark.parametrize(("models", "artifacts", "columns"), [(1, 1, 1), (3, 1, 3), (3, 4, 4), (2, 2, 2), (1, 5, 3)])
def test_a_row_of_panels_is_one_model_if_it_fits(models: int, artifacts: int, columns: int) -> None:
    keys = [SubjectKey("d", str(artifact), str(model)) for model in range(models) for artifact in range(artifacts)]
    _, panels = figures.panel_grid(keys)
    assert len(panels) == models * artifacts
    assert {axes.get_subplotspec().get_gridspec().ncols for axes in panels} == {columns}
