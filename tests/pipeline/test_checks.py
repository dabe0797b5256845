"""Preparing a run: what does not fit is reported before any work starts."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from hansfree.corrections.selection import BalancedRule, OneStandardErrorRule
from hansfree.errors import DataError, HansfreeError, LayerNotFoundError, OptionError, RunError
from hansfree.models import Preprocessing
from hansfree.pipeline.checks import PreparedRun, prepare_run, resolve_preprocessing
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.identity import known_config, unused_keys
from tests.pipeline.user import CLASSES, COUNTS, SIZE, build, make_user, read_table, write_run, write_table

Usage = namedtuple("Usage", "total used free")


def prepared(user: Path, **sections: Any) -> PreparedRun:
    return prepare_run(read_run_file(write_run(user / "run.yaml", **sections)))


def test_what_fits_together_is_told_and_nothing_is_written(user: Path) -> None:
    before = sorted(user.rglob("*"))
    found = prepared(user)
    assert sorted(user.rglob("*")) == sorted([*before, user / "run.yaml"])
    facts = dict(found.facts)
    assert "Sequential, 2 classes" in facts["model"]
    assert facts["layer"].startswith(f"{found.setting.layer}. ")
    assert facts["images"] == (
        "training 56 (16 with the artifact), validation 52 clean + 52 with the artifact, test 52 clean + 52 "
        "with the artifact; "
        "biased class 'dark'"
    )
    assert "note" not in facts or "pixels" not in facts["note"]
    assert facts["disk"].startswith(
        "up to 840 KB: 828 KB for 264 images (1.57 KB each at the layer), 12.5 KB for the weights of 5 models; "
    )  # the original one, three methods, and what is exported
    assert found.setting.rule == BalancedRule(0.02)
    assert found.setting.data.train.class_names == CLASSES
    assert dict(prepared(user, artifact={"insert": "timestamp"}).facts)["images"] == (
        "training 56 (16 with the artifact), validation 52 and test 52, each without and with the inserted artifact; "
        "104 held-out images with the natural artifact are not used; biased class 'dark'"
    )


@pytest.mark.parametrize(
    ("sections", "kind", "sentence"),
    [
        ({"data": {"root": "imagse"}}, DataError, "there is no folder {user}/imagse. Did you mean 'images'?"),
        ({"data": {"table": "label.csv"}}, DataError, "data.table: there is no file {user}/label.csv. Did you mean 'l"),
        ({"model": {"weights": "tow.safetensors"}}, OptionError, "model.weights: there is no file {user}/tow."),
        ({"artifact": {"insert": "patch", "file": "stiker.png"}}, OptionError, "Did you mean 'sticker.png'?"),
        ({"model": {"source": "ent.py:build"}}, OptionError, "Did you mean 'net.py'?"),
        ({"model": {"source": "net.py:biuld"}}, OptionError, "Did you mean 'build'?"),
        ({"device": "cud"}, OptionError, "There is no device 'cud'. Did you mean 'cuda'?"),
        ({"correction": {"methods": ["rr-clarc", "augmented"]}}, OptionError, "Set artifact.insert in the run file"),
        ({"correction": {"cav": "pair"}}, OptionError, "Set artifact.insert in the run file"),
        ({"data": {"classes": ["dark", "bright", "dim"]}}, OptionError, "safetensors' gives 2 answers, not 3: give"),
        ({"data": {"classes": ["dark", "brihgt"]}}, DataError, "The nearest of those is 'brihgt'."),
        ({"artifact": {"biased_class": "drak"}}, HansfreeError, "Did you mean 'dark'?"),
        ({"artifact": {"column": "ruler"}}, DataError, "labels.csv has no column 'ruler'"),
        ({"model": {"layer": "22"}}, LayerNotFoundError, "Sequential has no layer '22'. Did you mean '2'?"),
        ({"model": {"output": "binary"}}, OptionError, "gives 2 answers, not 1"),
        ({"model": {"output": "label", "label": "a"}, "data": {"classes": None}}, OptionError, "needs data.classes"),
        ({"correction": {"class_budgets": {"brigt": 0.1}}}, OptionError, "which is not a class. Did you mean"),
        ({"correction": {"class_budgets": {"bright": 0.1, 1: 0.2}}}, OptionError, "names 'bright' twice"),
        ({"model": {"output": "label", "label": "drak"}}, OptionError, "'drak' is not in data.classes. Did you"),
        ({"data": {"mean": [0.5], "std": [0.5]}}, OptionError, "data.std have 1 and 1 numbers; 3 channels need 3"),
        ({"data": {"size": 2}}, OptionError, "cannot take images of 3 x 2 x 2 numbers"),
        ({"data": {"channels": 1, "mean": [0.5], "std": [0.5]}}, OptionError, "cannot take images of 1 x 32 x 32"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_sentence(
    user: Path, sections: dict[str, Any], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as told:
        prepared(user, **sections)
    assert sentence.format(user=user) in str(told.value)
    assert "\n" not in str(told.value)
    assert not (user / "run").exists()


def test_a_model_of_more_classes_than_the_data_have(user: Path) -> None:
    torch.manual_seed(0)
    save_file(build(5).state_dict(), user / "five.safetensors")
    with pytest.raises(DataError, match=r"has 5 outputs, the data have 2 classes: bright, dark\. List data\.classes"):
        prepared(user, model={"weights": "five.safetensors"}, data={"classes": None})


def test_a_model_that_answers_real_images_with_infinity(user: Path) -> None:
    weights = load_file(user / "two.safetensors")
    weights["0.weight"] *= 1e38
    save_file(weights, user / "huge.safetensors")
    with pytest.raises(OptionError, match="not finite"):
        prepared(user, model={"weights": "huge.safetensors"})


def test_a_disk_that_is_too_small(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(RunError, match=r"The run needs up to 840 KB in .*run, where 1 KB are free"):
        prepared(user)
    for name in ("activations/x/shard", "corrected/vanilla.safetensors"):  # what the run has already
        (user / "run" / name).parent.mkdir(parents=True)
        (user / "run" / name).write_bytes(bytes(2 * 10**6))
    (user / "run" / "config.yaml").write_text(yaml.safe_dump(known_config(read_run_file(user / "run.yaml"))))
    assert dict(prepared(user).facts)["disk"].startswith("up to 0 B")


def test_a_place_that_holds_something_else_is_refused_before_the_run(user: Path) -> None:
    with pytest.raises(RunError, match=r"images is not empty and holds no run"):
        prepared(user, out="images")
    with pytest.raises(RunError, match=r"labels\.csv is a file"):
        prepared(user, out="labels.csv")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"correction": {"epochs": 5}}, "(correction.epochs was 2, is now 5)"),
        ({"data": {"shares": [0.6, 0.2, 0.2]}}, "(data.shares was [0.8, 0.1, 0.1], is now [0.6, 0.2, 0.2])"),
        ({"correction": {"rule": "knee"}}, "(correction.rule was 'best', is now 'knee')"),
        ({"correction": {"balanced": True}}, "(correction.balanced was False, is now True)"),
        ({"artifact": {"keep": ["lsb"]}}, "(artifact.keep was [], is now ['lsb'])"),
    ],
)
def test_another_run_in_the_folder_is_told_before_the_model_is_loaded(
    user: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], sentence: str
) -> None:
    config = known_config(read_run_file(write_run(user / "run.yaml")))
    config["model"]["layer"] = "2"
    (user / "run").mkdir()
    (user / "run" / "config.yaml").write_text(yaml.safe_dump({**config, "images": "those"}))
    monkeypatch.setattr("hansfree.pipeline.checks.load_run_model", lambda _: pytest.fail("it was loaded"))
    with pytest.raises(RunError, match="holds another run") as told:
        prepared(user, **changed)
    assert sentence in str(told.value)


def test_the_rule_and_class_budgets_of_the_file_are_used(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepared(user, correction={"rule": "knee", "budget": 0.05}).setting.rule == OneStandardErrorRule(0.05)
    guarded = {"class_budgets": {"bright": 0.1}}
    assert prepared(user, correction=guarded).setting.rule == BalancedRule(0.02, {1: 0.1})
    monkeypatch.setattr("hansfree.pipeline.checks.MIN_GROUP", 99)
    with pytest.raises(OptionError, match=r"'bright' has 26 clean validation images; 99 are needed"):
        prepared(user, correction=guarded)


def test_too_few_validation_images_are_reported_with_advice(user: Path) -> None:
    rows = [row for row in read_table(user / "labels.csv") if row[3] == "train" or (row[2], row[3]) == ("0", "val")]
    write_table(user / "labels.csv", [row[:3] for row in rows], ("image", "label", "artifact"))
    with pytest.raises(DataError, match=r"there are: dark 4, bright .* Their share is 10 %\. Raise it \(data"):
        prepared(user)
    given = [(*row[:3], "test" if i % 3 == 0 and row[3] == "val" else row[3]) for i, row in enumerate(rows)]
    write_table(user / "labels.csv", given)
    with pytest.raises(DataError, match=r"Move images without the artifact into the validation split"):
        prepared(user)


def test_a_size_and_a_crop_that_do_not_fit_the_images_are_noted(user: Path) -> None:
    def notes(**data: Any) -> list[str]:
        facts = prepared(user, data=data).facts
        return [told for name, told in facts if name == "note" and "the first image has 32 x 32 pixels" in told]

    assert notes(size=64) == []
    (told,) = notes(size=65)
    assert told.startswith("Images are enlarged to 65 x 65 pixels")
    (told,) = notes(size=56, resize="crop")
    assert told.startswith("`resize: crop` discards 23 % of each image")  # 1 - (224 / 256) ** 2


def test_an_image_that_cannot_be_read_is_refused_or_left_out(user: Path) -> None:
    (user / "images" / "train-0-0-3.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"train-0-0-3\.png"):
        prepared(user)
    found = prepared(user, data={"skip_bad": True})
    assert len(found.setting.data.train) == 55
    (sentence,) = [sentence for name, sentence in found.facts if name == "left out"]
    assert "train-0-0-3.png" in sentence


@pytest.mark.parametrize(
    ("artifact", "name"),
    [
        ({}, ""),
        ({"name": "ruler"}, "ruler"),
        ({"insert": "patch", "file": "sticker.png"}, "sticker"),
        ({"insert": "timestamp"}, "timestamp"),
        ({"insert": "timestamp", "name": "date"}, "date"),
        ({"column": "ruler"}, "ruler"),
        ({"column": "ruler", "insert": "timestamp"}, "ruler"),
    ],
)
def test_results_call_the_artifact_by_the_best_name_there_is(user: Path, artifact: dict[str, str], name: str) -> None:
    text = (user / "labels.csv").read_text()
    (user / "labels.csv").write_text(
        text.replace("image,label,artifact", f"image,label,{artifact.get('column', 'artifact')}")
    )
    assert prepared(user, artifact=artifact).setting.data.artifact == name


def test_how_images_are_prepared(user: Path) -> None:
    run = read_run_file(write_run(user / "run.yaml", data={"mean": None, "std": None, "size": None}))
    told = Preprocessing(size=48, channels=3, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0), resize="crop")
    assert resolve_preprocessing(run.data, told) == told
    assert resolve_preprocessing(run.data, None).size == 224
    given = read_run_file(write_run(user / "run.yaml", data={"resize": "crop"}))
    assert resolve_preprocessing(given.data, None) == Preprocessing(
        size=SIZE, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3, resize="crop"
    )
    grey = read_run_file(write_run(user / "run.yaml", data={"channels": 1, "mean": None, "std": None}))
    assert resolve_preprocessing(grey.data, None).mean == (0.5,)


PATCH = {"artifact.file", "artifact.place", "artifact.scale", "artifact.angle"}


def unused(user: Path, **sections: Any) -> set[str]:
    found = prepared(user, **sections)
    return set(unused_keys(found.run, found.images))


def test_shares_count_where_the_split_is_drawn(tmp_path: Path) -> None:
    """As many images as a drawn split needs for two classes."""
    user = make_user(tmp_path / "user", {kind: 5 * n for kind, n in COUNTS.items()})
    assert unused(user) == {"data.shares", "artifact.share", *PATCH}
    rows = read_table(user / "labels.csv")
    write_table(user / "labels.csv", [row[:3] for row in rows], ("image", "label", "artifact"))
    assert unused(user) == {"artifact.share", *PATCH}
