"""The single ideas run on small data; strengths are selected before a test image is read."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hansfree as hf
from hansfree.models import ARCHITECTURES
from hansfree.models.weights import write_weights
from hansfree_paper.embedded import Synthetic
from tests.pipeline.worlds import write_table

SIZES = {"n_base": 160, "n_train": 100, "n_val": 104, "n_test": 40}
NUMBER = r"[-+]?\d+\.\d"
LINE = re.compile(rf"\| ({NUMBER}(?:, {NUMBER})+) \| ({NUMBER}) \({NUMBER} to {NUMBER}\)")
FOUND = {  # what each prints, and how often
    "monitored": (r"\| timestamp \| (signal|pair-1) \|", 2),
    "forgotten": (r"^\| (original model|head corrected|fresh head) \|", 3),
    "chosen_layer": (r"chosen against auto", 1),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SIZES.items():
        monkeypatch.setattr(Synthetic, name, value)
    monkeypatch.setattr(hf.RRClArC, "info", replace(hf.RRClArC.info, strengths=(0.1, 10.0)))


def run(monkeypatch: pytest.MonkeyPatch, name: str, work: Path, *options: object) -> None:
    small = ("--epochs", 1, "--size", 32, "--resamples", 2, "--work", work)
    monkeypatch.setattr(sys, "argv", [name, *map(str, small), *map(str, options)])
    importlib.import_module(f"benchmarks.ideas.{name}").main()


@pytest.mark.parametrize(("name", "comparisons"), [("knee_rule", 2), ("step_penalty", 1), ("read_pooling", 4)])
def test_strengths_are_selected_before_a_test_image_is_read(
    name: str, comparisons: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / f"{name}.jsonl"
    seen: list[bool] = []  # per test image: whether the settings were written
    render = hf.SyntheticLesions.render

    def watched(self: hf.SyntheticLesions, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]:
        if self.ids[index] >= SIZES["n_base"] + SIZES["n_val"]:
            seen.append(settings.exists())
        return render(self, index, plaster=plaster)

    monkeypatch.setattr(hf.SyntheticLesions, "render", watched)
    run(monkeypatch, name, tmp_path, "--artifact", "timestamp")
    assert seen
    assert all(seen)
    written = [json.loads(line) for line in settings.read_text().splitlines()]
    assert {each["resample"] for each in written} == {0, 1}
    assert all(each["strengths"] for each in written)
    output = capsys.readouterr().out
    found = LINE.findall(output)
    assert len(found) == 2 * comparisons  # two measures each
    for scores, difference in found:
        *_, old, new = map(float, scores.split(", "))
        assert float(difference) == pytest.approx(new - old, abs=0.16)  # each is rounded
    for counts in re.findall(r"(\d+) wins, (\d+) ties, (\d+) losses", output):
        assert sum(map(int, counts)) == comparisons


@pytest.mark.parametrize("name", FOUND)
def test_ideas_on_the_embedded_suite(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, name, tmp_path, "--artifact", "timestamp")
    pattern, count = FOUND[name]
    assert len(re.findall(pattern, capsys.readouterr().out, re.M)) == count


def test_an_idea_on_a_table_of_images(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ARCHITECTURES, "resnet18", ARCHITECTURES["demo"])
    write_table(tmp_path)
    weights = tmp_path / "resnet18.safetensors"
    write_weights(weights, hf.build_model("resnet18", classes=2).state_dict())
    options = ("--root", tmp_path, "--biased-class", "A", "--other-class", "B", "--weights", weights)
    run(monkeypatch, "several_artifacts", tmp_path / "work", *options)
    assert "losses" in capsys.readouterr().out
