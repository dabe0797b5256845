"""Faults in artifact labels and copies of images are warnings or errors before any training, whoever calls."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import hansfree as hf
from hansfree.cli import app
from tests.pipeline.user import COUNTS, build, make_user, read_table, write_run, write_table

Row = tuple[str, str, int, str]  # image, label, artifact label, split
IN_TRAINING = {("train", 0, 0): 40, ("train", 0, 1): 40, ("train", 1, 0): 60, ("train", 1, 1): 6}


class TrainingBeginsError(Exception):
    """Raised in place of the first correction."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_user(tmp_path_factory.mktemp("faulty") / "user", {**COUNTS, **IN_TRAINING})


@pytest.fixture
def user(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def begin(*_: object) -> None:
        raise TrainingBeginsError

    monkeypatch.setattr("hansfree.api.Experiment.rows", begin)
    return Path(shutil.copytree(world, tmp_path / "user"))


def run_file(user: Path, rows: list[Row], caplog: pytest.LogCaptureFixture) -> str:
    """Return what `hansfree run` says, on the terminal and in the log, before training begins, or its error."""
    write_table(user / "labels.csv", [*rows])
    with caplog.at_level(logging.WARNING, "hansfree"):
        done = CliRunner().invoke(app, ["run", str(write_run(user / "run.yaml"))])
    return " ".join([*done.output.split(), *caplog.messages, str(done.exception)])


def call_unlearn(user: Path, rows: list[Row], caplog: pytest.LogCaptureFixture) -> str:
    """Return what `hansfree.unlearn` logs of the same images before training begins, or its error."""
    parts: dict[str, list[Any]] = {"train": [], "val": [], "test": []}
    for name, label, has_artifact, part in rows:
        with Image.open(user / name) as picture:
            parts[part].append((np.asarray(picture), int(label == "bright"), has_artifact))
    model = build()
    model.load_state_dict(load_file(user / "two.safetensors"))
    half = hf.Normalize((0.5,) * 3, (0.5,) * 3)
    with caplog.at_level(logging.WARNING, "hansfree"), pytest.raises((TrainingBeginsError, hf.HansfreeError)) as caught:
        hf.unlearn(model, **parts, normalize=half, method="vanilla", progress=False)
    return " ".join([*caplog.messages, str(caught.value)])


def relabelled(rows: list[Row], change: Callable[[Row], bool]) -> list[Row]:
    return [(row[0], row[1], int(change(row)), row[3]) for row in rows]


def with_copy(user: Path, rows: list[Row], name: str, part: str) -> list[Row]:
    """Return the rows with a copy of an image."""
    shutil.copy(user / name, user / "images" / "copy.png")
    (row,) = (row for row in rows if row[0] == name)
    return [*rows, ("images/copy.png", row[1], row[2], part)]


def some_wrong(user: Path, rows: list[Row]) -> list[Row]:
    wrong = {rows[index][0] for index in np.random.default_rng(0).permutation(len(rows))[: len(rows) // 10]}
    return relabelled(rows, lambda row: bool(row[2]) != (row[0] in wrong))


FAULTS: dict[str, tuple[Callable[[Path, list[Row]], list[Row]], str]] = {
    "swapped": (lambda user, rows: relabelled(rows, lambda row: not row[2]), "Check that 1 means with the artifact"),
    "10 % wrong": (some_wrong, "images look wrongly labelled"),
    "a class": (
        lambda user, rows: relabelled(rows, lambda row: bool(row[2]) or row[1] == "bright"),
        "images of (bright have the artifact.*Check these|the biased class '1' have the artifact)",  # or it is biased
    ),
    "the biased class": (
        lambda user, rows: relabelled(rows, lambda row: bool(row[2]) or row[1] == "dark"),
        "The direction is learned within that class, from at least 5 with and 5 without.",
    ),
    "an image twice": (
        lambda user, rows: with_copy(user, rows, "images/train-0-1-3.png", "train"),
        "Images of one split have the same content \\(1: ",
    ),
    "training and test": (
        lambda user, rows: with_copy(user, rows, "images/train-0-1-3.png", "test"),
        "Some training and test images have the same content \\(1: ",
    ),
}


@pytest.mark.parametrize("call", [run_file, call_unlearn])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_before_any_training(
    fault: str, call: Callable[..., str], user: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[Row] = [(name, label, int(bit), part) for name, label, bit, part in read_table(user / "labels.csv")]
    change, words = FAULTS[fault]
    assert re.search(words, call(user, change(user, rows), caplog))


@pytest.mark.parametrize("call", [run_file, call_unlearn])
def test_right_labels_raise_no_doubt(call: Callable[..., str], user: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[Row] = [(name, label, int(bit), part) for name, label, bit, part in read_table(user / "labels.csv")]
    said = call(user, rows, caplog)
    assert not any(re.search(words, said) for _, words in FAULTS.values())
