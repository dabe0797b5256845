"""Clean against biased, read back from the drawing's own elements."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hansfree.cavs import CAV
from hansfree.evaluation.results import Results, Row, load_results
from hansfree.report.plots import Plot, draw_tradeoff
from tests.report.conftest import CHOSEN, STRENGTHS, TAKEN, MakeRun, score


def labels_of(plot: Plot | None) -> list[str]:
    assert plot is not None
    return [each.get("aria-label", "").replace("\xa0", " ") for each in plot.svg if each.get("class") == "point"]


def test_nothing_to_draw_is_no_plot() -> None:
    assert draw_tradeoff(Results(rows=(), meta={}, selection={}, heatmaps=None)) is None


def test_every_strength_is_a_point_and_the_chosen_are_marked(make_run: MakeRun) -> None:
    plot = draw_tradeoff(load_results(make_run()))
    labels = labels_of(plot)
    assert "RR-ClArC, strength 10 (chosen): 91.6 % without the artifact, 87.1 % with it" in labels
    assert "P-ClArC: 88.0 % without the artifact, 82.2 % with it" in labels
    # all but the one that diverged, and those that lose too much to be shown
    outside = int(re.search(r"(\d+) strengths? lies? outside", plot.caption)[1]) if "outside" in plot.caption else 0
    n_paths = sum(map(len, STRENGTHS.values()))
    assert len(labels) == n_paths + len(CHOSEN) - len(STRENGTHS) - 1 - outside
    assert not any("strength 1e+05" in label for label in labels)
    legend = [each.text for each in plot.svg.iter("text")][-len(CHOSEN) :]
    assert legend == ["Original", "Vanilla", "RRR", "P-ClArC", "A-ClArC", "RR-ClArC", "Clean-trained"]


@pytest.mark.parametrize("collapsed", [0, 1, 2])
def test_collapsed_strengths_do_not_set_the_axes(make_run: MakeRun, collapsed: int) -> None:
    lost = STRENGTHS["rr-clarc"][5 : 5 + collapsed]

    def change(rows: list[Row]) -> list[Row]:
        kept = [row for row in rows if row.method != "rr-clarc" or row.strength in (1.0, TAKEN["rr-clarc"], *lost)]
        return [replace(row, value=0.25) if row.method == "rr-clarc" and row.strength in lost else row for row in kept]

    plot = draw_tradeoff(load_results(make_run(change=change)))
    assert plot is not None
    notes = ["", " 1 strength lies outside the axes: it loses", " 2 strengths lie outside the axes: they lose"]
    assert ("outside the axes" in plot.caption) == (collapsed > 0)
    assert notes[collapsed] in plot.caption
    assert not any("25.0 %" in label for label in labels_of(plot))


@pytest.mark.parametrize("biased", [0.90, 0.20])
def test_the_grey_line_is_spoken_of_where_it_is_drawn(make_run: MakeRun, biased: float) -> None:
    def change(rows: list[Row]) -> list[Row]:
        return [replace(row, value=biased) if row.metric == "balanced_accuracy_biased" else row for row in rows]

    plot = draw_tradeoff(load_results(make_run(change=change)))
    assert plot is not None
    is_drawn = any(line.get("stroke") == "#AAAAAA" for line in plot.svg.iter("line"))
    assert is_drawn == (biased > 0.8)
    assert ("On the grey line" in plot.caption) == is_drawn


def test_a_legend_of_many_long_names_has_room(make_run: MakeRun) -> None:
    names = [f"{method}@{cav}" for method in ("p-clarc-one-sided", "rr-clarc", "a-clarc") for cav in CAV.members()]
    metrics = ("balanced_accuracy_clean", "balanced_accuracy_biased")

    def change(rows: list[Row]) -> list[Row]:
        return [*rows, *(score(name, metric, 0.8) for name in names for metric in metrics)]

    plot = draw_tradeoff(load_results(make_run(change=change)))
    assert plot is not None
    words = [text for text in plot.svg.iter("text") if " along " in (text.text or "")]
    assert len(words) == len(names)
    assert max(float(text.get("y", "inf")) for text in words) < float(plot.svg.get("height", "0"))
    longest = max(float(text.get("x", "inf")) + 7 * len(text.text or "") for text in words)
    assert longest < float(plot.svg.get("width", "0"))
