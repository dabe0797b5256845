"""The examples that compare over draws: every difference is that of its scores, and the test images are read last."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import hansfree as hf
from hansfree.models import ARCHITECTURES
from hansfree.studies.synthetic import Synthetic
from hansfree.weights import write_weights
from tests.layer_choice.worlds import write_table

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SIZES = {"n_base": 200, "n_train": 120, "n_val": 104, "n_test": 40}
NUMBER = r"[-+]?\d+\.\d"
LINE = re.compile(rf"\| ({NUMBER}(?:, {NUMBER})+) \| ({NUMBER}) \({NUMBER} to {NUMBER}\)")


def run(monkeypatch: pytest.MonkeyPatch, name: str, work: Path, *options: object) -> None:
    monkeypatch.setattr(hf.RRClArC, "grid", (0.1, 1.0, 10.0))
    small = ("--epochs", 2, "--size", 32, "--draws", 2, "--work", work)
    monkeypatch.setattr(sys, "argv", [name, *map(str, small), *map(str, options)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def check(name: str, work: Path, said: str, comparisons: int) -> None:
    """The last two scores of a cell are the old and the new one; the counts add up to the comparisons."""
    settings = [json.loads(line) for line in (work / f"{name}.jsonl").read_text().splitlines()]
    assert {each["draw"] for each in settings} == {0, 1}
    assert all(each["strengths"] for each in settings)
    found = LINE.findall(said)
    assert len(found) == 2 * comparisons  # two measures each
    for scores, difference in found:
        *_, old, new = map(float, scores.split(", "))
        assert float(difference) == pytest.approx(new - old, abs=0.16)  # each is rounded
    for counts in re.findall(r"(\d+) wins, (\d+) ties, (\d+) losses", said):
        assert sum(map(int, counts)) == comparisons


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SIZES.items():
        monkeypatch.setattr(Synthetic, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("name", "comparisons"), [("knee_rule", 2), ("step_penalty", 1), ("read_pooling", 4)])
def test_variants_are_settled_before_a_test_image_is_drawn(
    name: str, comparisons: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[bool] = []  # per test image that was drawn: whether the settings were there
    render = hf.SyntheticLesions.render

    def watched(self: hf.SyntheticLesions, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]:
        if self.ids[index] >= SIZES["n_base"] + SIZES["n_val"]:
            seen.append((tmp_path / f"{name}.jsonl").exists())
        return render(self, index, plaster=plaster)

    monkeypatch.setattr(hf.SyntheticLesions, "render", watched)
    run(monkeypatch, name, tmp_path, "--artifact", "timestamp")
    said = capsys.readouterr().out
    check(name, tmp_path, said, comparisons)
    assert seen
    assert all(seen)


@pytest.mark.usefixtures("small")
def test_several_artifacts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "several_artifacts", tmp_path)
    said = capsys.readouterr().out
    (first, _) = (json.loads(line) for line in (tmp_path / "several_artifacts.jsonl").read_text().splitlines())
    joint = {"both, by the first", "both, by both"}
    assert set(first["strengths"]) == {"timestamp", "lsb", *joint}
    rows = re.findall(rf"\| ({NUMBER}(?:, {NUMBER}){{4}}) \| ({NUMBER}) [^|]+\| ({NUMBER}) ", said)
    assert len(rows) == 4
    for scores, *differences in rows:
        _, own, _, *both = map(float, scores.split(", "))
        assert [float(each) for each in differences] == pytest.approx([each - own for each in both], abs=0.16)


@pytest.mark.usefixtures("small")
def test_a_monitor_in_every_draw(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "monitored", tmp_path, "--artifact", "timestamp")
    signal, pair = capsys.readouterr().out.splitlines()[2:]
    shares = [
        float(re.split(r"[|(]", line)[5]) for line in (signal, pair)
    ]  # found; each cell has its interval in brackets
    assert float(re.search(rf"({NUMBER}) \([^|]*\|$", pair)[1]) == pytest.approx(shares[1] - shares[0], abs=0.16)  # type: ignore[index]


@pytest.mark.usefixtures("small")
def test_what_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "forgotten", tmp_path, "--artifact", "timestamp")
    said = capsys.readouterr().out
    names = ["as it came", "head corrected", "fresh head"]
    assert [line.split("|")[1].strip() for line in said.splitlines()[3:6]] == names
    assert said.splitlines()[3].split("|")[7].strip() == "100"  # all of its own change is left
    assert said.count(" minus ") == 1


@pytest.mark.parametrize("name", ["step_penalty", "several_artifacts", "forgotten"])
def test_images_of_a_table(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name != "step_penalty":  # one of them with the real network, which takes its time
        monkeypatch.setitem(ARCHITECTURES, "resnet18", ARCHITECTURES["demo"])
    write_table(tmp_path)
    weights = tmp_path / "resnet18.safetensors"
    write_weights(weights, hf.build_model("resnet18", classes=2).state_dict())
    options: list[object] = ["--root", tmp_path, "--biased-class", "A", "--weights", weights]
    options += ["--other-class", "B"] if name == "several_artifacts" else ["--artifact", "timestamp"]
    run(monkeypatch, name, tmp_path / "work", *options)
    said = capsys.readouterr().out
    if name == "step_penalty":
        check(name, tmp_path / "work", said, 1)
    assert ("head corrected minus as it came" if name == "forgotten" else "losses") in said
