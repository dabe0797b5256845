"""``hansfree layers``: a table to copy names from, and errors in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hansfree.models import build_model
from tests.conftest import Call
from tests.pipeline.user import write_run

NET = """
from torch import nn
def one_logit():
    return nn.Sequential(nn.Conv2d(1, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1))
class Squeezed(nn.Sequential):
    def forward(self, images):
        return super().forward(images).squeeze()
def squeezed(num_classes):
    return Squeezed(nn.Conv2d(1, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))
"""


@pytest.fixture
def call(call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call the command line in a terminal of some width."""

    def inside(*words: str | Path, width: int = 160) -> tuple[int, str, str]:
        monkeypatch.setattr("hansfree.cli.layers.console.width", width, raising=False)
        return call(*words)

    return inside


def rows_of(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_usable_layers_are_listed_and_all_with_reasons(call: Call) -> None:
    code, out, _ = call("layers", "demo", "--size", "64")
    assert code == 0
    rows = rows_of(out)
    assert ["features.0", "32x32x32", "698k", "131", "KB", "yes"] in rows
    assert [row[0] for row in rows if row and row[-1] == "recommended"] == ["features.10"]
    assert "classifier" not in [row[0] for row in rows if row]  # it cannot be used
    assert "Layers not shown: 1 (--all shows them)." in out
    assert "Recommended: features.10. It gives the last maps (128 x 4 x 4)" in out
    _, out, _ = call("layers", "demo", "--size", "64", "--all")
    (row,) = [" ".join(row) for row in rows_of(out) if row and row[0] == "classifier"]
    assert row == "classifier 1000 0 no: 'classifier' is the output of DemoNet: nothing follows it"
    assert "not shown" not in out


def test_channels_logits_and_classes_are_found(call: Call, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    code, out, err = call("layers", f"{tmp_path / 'net.py'}:one_logit", "--size", "16")
    assert (code, err) == (0, "")
    assert ["0", "4x13x13", "5", "2.7", "KB", "recommended"] in rows_of(out)
    words = ("layers", f"{tmp_path / 'net.py'}:squeezed", "--size", "16", "--all")
    code, _, err = call(*words)
    assert code == 1
    assert "Say how many classes there are" in err
    for classes in ("1", "3"):
        code, out, err = call(*words, "--classes", classes)
        assert (code, err) == (0, "")
        assert ["4", classes, "0"] in [row[:3] for row in rows_of(out)]
    torch.save(build_model("demo", classes=5).state_dict(), tmp_path / "w.pt")
    _, out, _ = call("layers", "demo", "--size", "64", "--all", "--weights", tmp_path / "w.pt")
    assert ["classifier", "5", "0", "no:"] in [row[:4] for row in rows_of(out)]


@pytest.mark.parametrize(
    ("words", "expected", "sentence"),
    [
        (("vgg61",), 1, "Did you mean 'vgg16'?"),
        (("demo", "--weights", "nowhere.pt"), 1, "no file of weights 'nowhere.pt'"),
        (("demo", "--channels", "1", "--size", "32"), 1, "cannot take images of 1 x 32 x 32"),
        (("mine.yaml", "--choose", "--size", "64"), 2, "Leave --size out."),
        (("mine.yaml", "--choose", "--weights", "model.pt"), 2, "Leave --weights out."),
        (("mine.yaml", "--choose", "--classes", "3"), 2, "Leave --classes out."),
        (("mine.yaml", "--choose", "--channels", "1"), 2, "Leave --channels out."),
        (("mine.yaml", "--choose", "--all"), 2, "Leave --all out."),
        (("demo", "--tries", "3"), 2, "Leave --tries out."),
    ],
)
def test_what_is_refused_is_one_sentence(call: Call, words: tuple[str, ...], expected: int, sentence: str) -> None:
    code, out, err = call("layers", *words)
    assert (code, out) == (expected, "")
    assert sentence in " ".join(err.split())
    assert expected == 2 or err.count("\n") == 1


def test_the_layer_of_a_run_file_is_chosen_by_its_images(call: Call, user: Path) -> None:
    file = write_run(user / "mine.yaml", model={"layer": "22"})  # a wrong layer is looked up here
    code, out, err = call("layers", file)
    assert (code, err) == (0, "")
    assert [row[:2] for row in rows_of(out) if row and row[-1] == "recommended"] == [["2", "8x7x7"]]
    assert out.splitlines()[-1] == f"To choose one with your images: hansfree layers {file} --choose"
    code, out, err = call("layers", file, "--size", "64")
    assert (code, out) == (2, "")
    assert "The run file describes the model. Leave --size out." in " ".join(err.split())

    file = write_run(user / "mine.yaml")
    code, out, err = call("layers", file, "--choose", "--tries", "1")
    assert code == 0, err
    rows = {row[0]: row for row in rows_of(out.partition("AUC: of")[0])[1:]}
    assert set(rows) == {"0", "2"}
    (chosen,) = (row for row in rows.values() if row[1] == "*")
    assert chosen[-2] == "→"
    assert f"To use it: write `layer: {chosen[0]}` below `model:` in {file}." in out
    assert f"{chosen[0]}, strength " in out
    assert not (user / "run").exists()  # nothing is written
    code, out, _ = call("layers", file, "--choose", "--tries", "0")
    assert code == 0
    assert "None was tried." in out
