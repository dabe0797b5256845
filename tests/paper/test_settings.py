"""What a page says was run is what was run."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import save_file

from hansfree.corrections import RRClArC
from hansfree.models import build_model
from hansfree.paper.aggregate import SubjectKey
from hansfree.paper.runner import setting_of, write_settings
from tests.paper.conftest import Examine
from tests.paper.examples import BRIGHT, RESNET, VGG, path, row
from tests.pipeline.studies import Natural, Single, opened


def test_of_pictures_alone_only_the_data_are_described(tmp_path: Path) -> None:
    with opened(tmp_path, Single()) as subject:
        words = setting_of(subject, [])
        assert "data" not in vars(subject), "nothing is read into memory"
    assert words == {
        "dataset": "Single shortcut, 32 px, seed 0",
        "classes": "4",
        "images": "160 train, 104 val clean, 104 val biased, 120 test clean, 120 test biased",
        "artifact in training": "in 20 of 40 images of class 'smooth-even' (50.0 %) and in 0 of 120 others",
    }


def test_a_bias_in_the_scenes_is_said_to_be_there(tmp_path: Path) -> None:
    with opened(tmp_path, Natural()) as subject:
        assert "it is in the scenes" in setting_of(subject, [])["artifact in training"]


def test_of_cavs_the_model_and_of_corrections_everything_is_described(examine: Examine, work: Path) -> None:
    finding = examine("table1", Single())
    cavs = [each for each in finding.rows if each.method.startswith("cav:")]
    with opened(work, Single()) as subject:
        words, of_cavs = setting_of(subject, finding.rows), setting_of(subject, cavs)
        rule = str(subject.experiment.setting.rule)
    assert words.items() > of_cavs.items()
    assert of_cavs["training starts from"] == "random weights"
    trained = "the whole model, 2 epochs of Adam at 0.003, batches of 32, seed 0, on cpu"
    assert of_cavs["trained on the biased images"] == trained
    assert of_cavs["layer"] == "`features.10`"
    corrected = "all that follows the layer, 2 epochs of SGD at 0.0001, batches of 32, seed 0"
    assert words["corrections fine-tune"] == corrected
    assert words["strengths"] == "rrr 0.1; rr-clarc 0.1, 10, in our units"
    assert words["strength chosen by"] == rule
    assert "seeds of the correction" not in words


def test_what_the_user_chose_is_said(tmp_path: Path) -> None:
    file = tmp_path / "demo.safetensors"
    save_file(build_model("demo", classes=4).state_dict(), file)
    options = {"weights": str(file), "trained": "head", "epochs": 1, "corrected": "last", "repeats": 3}
    with opened(tmp_path, Single(), **options, grid="paper", left_out=("rrr",), strengths={}) as subject:
        # of a method whose rows hold the chosen strength alone, all that were tried are told
        words = setting_of(subject, path("rr-clarc", {500.0: (0.9, 0.8)}, chosen=500.0))
    assert words["training starts from"] == "`demo.safetensors`"
    assert words["trained on the biased images"].startswith("only what follows the layer, 1 epoch of Adam at 0.003")
    assert words["corrections fine-tune"].startswith("the last linear layer only, 2 epochs")
    assert words["seeds of the correction"] == "0, 1, 2; the strength is chosen with the first"
    ends = (min(RRClArC.info.paper_strengths), max(RRClArC.info.paper_strengths))
    assert words["strengths"] == f"rr-clarc 22 from {ends[0]:g} to {ends[1]:g}, in the paper's units"
    assert words["not run"] == "rrr"


def test_times_have_no_strengths(work: Path) -> None:
    with opened(work, Single()) as subject:
        words = setting_of(subject, [row("rr-clarc", "seconds_per_epoch", 1.0, chosen=None, split=None)])
    assert words["corrections fine-tune"] == "all that follows the layer"
    assert "strengths" not in words


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({VGG: "a", RESNET: "a", BRIGHT: "a"}, ["- what: a"]),
        ({VGG: "a", RESNET: "b", BRIGHT: "a"}, ["- what:", "  - vgg16: a", "  - resnet18: b"]),
        ({VGG: "a", RESNET: "a", BRIGHT: "b"}, ["- what:", "  - timestamp: a", "  - brightness: b"]),
        (
            {VGG: "a", RESNET: "b", BRIGHT: "c"},
            ["- what:", f"  - {VGG.title}: a", f"  - {RESNET.title}: b", f"  - {BRIGHT.title}: c"],
        ),
    ],
)
def test_what_differs_is_told_by_the_word_that_decides_it(values: dict[SubjectKey, str], lines: list[str]) -> None:
    text = write_settings({key: {"what": value} for key, value in values.items()})
    assert text.splitlines() == ["- model: vgg16, resnet18", "- artifact: timestamp, brightness", *lines]
