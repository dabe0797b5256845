"""The figures in the docs are those of the benchmark that is kept beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.speed import Measure, read_measures

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "results" / "bench" / "bench.json"
MODELS = ("resnet18", "efficientnet_b0", "vgg16")
ROWS = {
    "whole path of 22, over the paper's procedure": "path_over_paper",
    "the same with a head in all of its inputs": "plain_path_over_paper",
    "one strength, over the paper's procedure": "one_over_paper",
    "pass, CAV, path and choice, over one forward pass": "path_over_forward",
    "the same from JPEG files": "path_over_forward_jpeg",
    "a step of RR-ClArC over one of Vanilla": "rr_step_over_vanilla_step",
    "RRR, one strength, over the paper's": "rrr_over_paper",
    "RRR, the five of a run, over the paper's": "rrr_grid_over_paper",
    "RRR everywhere, one strength, over the paper's": "rrr_everywhere_over_paper",
    "RRR everywhere, the five of a run, over the paper's": "rrr_grid_everywhere_over_paper",
    "heatmaps: time over plain zennit's": "heatmaps_over_zennit",
    "pass onto disk: images per second over the forward pass": "cache_speed_over_forward",
    "a strength more, over the pass": "strength_over_pass",
}


def number(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def cell(measure: Measure | None) -> str:
    if measure is None:
        return ""
    return f"{number(measure.value)} ({number(measure.low)} to {number(measure.high)})"


@pytest.fixture(scope="module")
def measures() -> dict[str, Measure]:
    return dict(read_measures(KEPT))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("title", "name"), ROWS.items())
def test_the_table_of_ratios(title: str, name: str, measures: dict[str, Measure]) -> None:
    cells = [title, *(cell(measures.get(f"{model}.{name}")) for model in MODELS)]
    assert f"|{'|'.join(f' {each} ' if each else ' ' for each in cells)}|" in page("docs/speed.md")


def test_growth_bytes_cavs_and_memory(measures: dict[str, Measure]) -> None:
    told = page("docs/speed.md")
    for model in MODELS[:2]:
        slopes = (measures[f"{model}.growth_{what}"].value for what in ("images", "classes", "strengths"))
        assert ", ".join(map(number, slopes)) in told
    for model in MODELS:
        assert f"{measures[f'{model}.cache_bytes_per_image'].value:,.0f}" in told
    for name in ("svm", "ridge", "lasso", "logistic"):
        assert f"{name} {cell(measures[f'cav.{name}_over_gridsearch'])}" in " ".join(told.split())
    assert f"({measures['memory_peak_1000'].value / 1e6:,.0f} MB)" in told
    for more in (4_000, 16_000):
        assert f"{cell(measures[f'memory_{more}_over_1000'])} with {more:,}" in " ".join(told.split())


def test_the_commit_is_named() -> None:
    assert json.loads(KEPT.read_text(encoding="utf-8"))["about"]["commit"][:7] in page("docs/speed.md")


def test_the_figures_in_the_readme(measures: dict[str, Measure]) -> None:
    floor, paper = (measures[f"resnet18.{name}"].value for name in ("path_over_forward", "path_over_paper"))
    told = re.search(r"take (\S+) of one plain forward pass, (\S+) % of the paper's procedure", page("README.md"))
    assert told is not None
    assert told.groups() == (number(floor), f"{100 * paper:.1f}")


def test_the_plan_on_paper(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = page("docs/at-scale.md")
    monkeypatch.chdir(KEPT.parent)
    exec(told.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.strip() in told
