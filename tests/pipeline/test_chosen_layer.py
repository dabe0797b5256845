"""The example that measures what a chosen layer is worth: both layers by one rule, and the test images read last."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import hansfree as hf
from hansfree.data.images import ImageFiles
from hansfree.models.weights import write_weights
from hansfree.paper.embedded import Synthetic
from tests.pipeline.worlds import write_table

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "chosen_layer.py"
LINE = re.compile(r"  (\w+) +model (\S+)  auto (\S+)  chosen (\S+)  difference (\S+) \(.*/below (\d)/(\d)/(\d)")


def run(monkeypatch: pytest.MonkeyPatch, work: Path, *options: object) -> list[dict[str, object]]:
    small = ("--epochs", 2, "--size", 32, "--draws", 2, "--images", 100, "--artifact", "timestamp", "--work", work)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, small), *map(str, options)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    return [json.loads(line) for line in (work / "chosen_layer.jsonl").read_text().splitlines()]


def check(settings: list[dict[str, object]], said: str) -> None:
    assert [each["draw"] for each in settings] == [0, 1]
    assert all({each["auto"], each["chosen"]} == set(each["strengths"]) for each in settings)  # type: ignore[call-overload]
    assert {each["auto"] for each in settings} == {"features.10"}
    found = LINE.findall(said)
    assert [line[0] for line in found] == ["balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate"]
    for _, _, auto, chosen, difference, *counts in found:
        assert float(difference) == pytest.approx(float(chosen) - float(auto), abs=0.11)  # each is rounded
        assert sum(map(int, counts)) == 2
    assert re.search(
        r"with the artifact: (1 wins, 0 ties, 0|0 wins, 1 ties, 0|0 wins, 0 ties, 1) losses$", said.strip()
    )


def test_settings_are_written_before_a_test_image_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"n_base": 200, "n_train": 120, "n_val": 104, "n_test": 40}.items():
        monkeypatch.setattr(Synthetic, name, value)
    seen: list[bool] = []  # per test image that was drawn: whether the settings were there
    render = hf.SyntheticLesions.render

    def watched(self: hf.SyntheticLesions, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]:
        if self.ids[index] >= 304:
            seen.append((tmp_path / "chosen_layer.jsonl").exists())
        return render(self, index, plaster=plaster)

    monkeypatch.setattr(hf.SyntheticLesions, "render", watched)
    check(run(monkeypatch, tmp_path), capsys.readouterr().out)
    assert seen
    assert all(seen)


def test_images_of_a_table_and_weights_of_a_backbone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path)
    weights, pixels, seen = tmp_path / "demo.safetensors", ImageFiles.image, []
    write_weights(weights, hf.build_model("demo", classes=2).state_dict())

    def watched(self: ImageFiles, index: int) -> np.ndarray:
        if self.ids[index] >= 136:
            seen.append((tmp_path / "work" / "chosen_layer.jsonl").exists())
        return pixels(self, index)

    monkeypatch.setattr(ImageFiles, "image", watched)
    table = ("--root", tmp_path, "--biased-class", "A", "--weights", weights)
    check(run(monkeypatch, tmp_path / "work", *table), capsys.readouterr().out)
    assert seen
    assert all(seen)
