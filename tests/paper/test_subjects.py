"""The paper's subjects: plans, base models and run directories; nothing is computed twice or mixed up."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hansfree.data.biased import SETS
from hansfree.errors import DataError, HansfreeError, RunError
from hansfree.models import architecture_named, build_model
from hansfree.models.surgery import split
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.runner import reproduce
from hansfree_paper.starts import start_model
from hansfree_paper.subjects import BaseModels, Plan, check_disk, recipe_for
from tests.pipeline.studies import Single, opened


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"subset_correction": 1}, "at least 2"),
        ({"repeats": 0}, "at least 1"),
        ({"weights": "pretraned"}, "no file of weights 'pretraned'. Did you mean 'pretrained'"),
        ({"strengths": {"rrr": (1.0, -1.0)}}, "at least 0"),
        ({"strengths": {"rrr": (float("nan"),)}}, "at least 0"),
        ({"strengths": {"rrr": ()}}, "at least 0"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HansfreeError, match=sentence.replace("(", r"\(")):
        Plan(**{"model": "demo", **options})


def models(work: Path, study: BenchmarkDataset | None = None, **options: Any) -> BaseModels:
    return BaseModels(study=study or Single(), plan=Plan(**{"model": "demo", **options}), work=work)


def train(work: Path, study: BenchmarkDataset | None = None, **options: Any) -> tuple[nn.Module, Path]:
    study = study or Single()
    return models(work, study, **options).trained(study.data("demo").train, "biased model")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def weights(work: Path) -> Path:
    """A file of weights for the demo network of another number of classes."""
    path = work / "weights.safetensors"
    save_file(build_model("demo", classes=7, seed=5).state_dict(), path)
    return path


def test_a_model_is_trained_once_and_found_again(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, path = train(work)
    fresh = build_model("demo", classes=4).state_dict()
    assert not torch.equal(first.state_dict()["features.0.weight"], fresh["features.0.weight"])
    assert not any(module.training for module in first.modules())
    with monkeypatch.context() as patch:
        patch.setattr("hansfree_paper.subjects.pretrain", None)  # a training would raise a TypeError
        again, same = train(work)
    assert same == path
    for name, tensor in load_file(path).items():
        assert torch.equal(first.state_dict()[name], tensor)
        assert torch.equal(again.state_dict()[name], tensor)
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    path.write_bytes(content)
    retrained, _ = train(work)
    assert all(torch.equal(retrained.state_dict()[name], tensor) for name, tensor in first.state_dict().items())


def test_whatever_the_weights_depend_on_is_in_the_files_name(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansfree_paper.subjects.pretrain", lambda *_, **__: None)
    start = {"weights": str(weights)}
    plans = [{}, {"epochs": 1}, {"seed": 1}, start, {**start, "trained": "head", "epochs": 1}]
    studies = [Single(artifact="timestamp"), Single(size=40), Single(seed=1)]
    found = [train(tmp_path, **plan)[1] for plan in plans] + [train(tmp_path, study)[1] for study in studies]
    assert len(set(found)) == len(plans) + len(studies)
    assert {path.parent for path in found} == {tmp_path / "models"}
    assert all(path.name.startswith("single-demo-") for path in found)


def test_training_the_head_leaves_the_trunk_as_it_is(work: Path, weights: Path) -> None:
    model, _ = train(work, weights=str(weights), trained="head", epochs=2)
    start = start_model("demo", classes=4, weights=weights).state_dict()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, start[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    given = load_file(weights)
    assert torch.equal(model.state_dict()["features.0.weight"], given["features.0.weight"])


def test_training_goes_on_after_a_kill_and_ends_in_the_same_weights(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, path = train(work)

    def killed_in_the_second_epoch(steps: Any, *, total: int, label: str) -> Any:
        for place, step in enumerate(steps):
            if place >= total // 2 + 1:
                raise KeyboardInterrupt
            yield step

    data = Single().data("demo").train
    with pytest.raises(KeyboardInterrupt):
        replace(models(tmp_path), progress=killed_in_the_second_epoch).trained(data, "biased model")
    kept = list((tmp_path / "models").iterdir())
    assert [each.suffix for each in kept] == [".checkpoint"]
    totals: list[int] = []

    def count(steps: Any, *, total: int, label: str) -> Any:
        totals.append(total)
        return steps

    model, again = replace(models(tmp_path), progress=count).trained(data, "biased model")
    epochs, batches = recipe_for(Single(), "demo", fresh=True).epochs, len(data) // 32
    assert totals == [(epochs - 1) * batches], "the first epoch is not done again"
    assert again.name == path.name
    assert sorted((tmp_path / "models").iterdir()) == [again.with_suffix(".json"), again], "weights and their checksum"
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected.state_dict()[name]), name


def test_pretrained_weights_that_know_the_classes_are_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known(Single):
        starts_clean = True

    given, path = build_model("demo", classes=4, seed=3).state_dict(), str(tmp_path / "given.safetensors")
    save_file(given, path)
    monkeypatch.setattr("hansfree_paper.subjects.PRETRAINED", path)  # the demo network has no others
    with opened(tmp_path, Known(), weights=path, epochs=1) as subject:
        reference = subject.experiment.setting.reference()
    assert reference is not None
    assert all(torch.equal(tensor, given[name]) for name, tensor in reference.state_dict().items())
    assert len(list((tmp_path / "models").glob("*.safetensors"))) == 1, "nothing but the biased model was trained"


def test_data_of_which_no_strength_can_be_chosen_are_refused_before_the_training(tmp_path: Path) -> None:
    class Few(Single):
        counts = (160, 40, 40)

    with opened(tmp_path, Few()) as subject, pytest.raises(DataError, match=r"takes 2 classes of at least 25"):
        _ = subject.experiment
    assert not (tmp_path / "models").exists()


def test_corrections_see_a_part_of_the_images_and_the_biased_model_all() -> None:
    whole, plan = Single().data("demo"), Plan(model="demo", subset_correction=10)
    thinned = plan.thinned(whole)
    for name in ("train", "val_clean", "val_biased"):
        labels, others = getattr(whole, name).labels, getattr(thinned, name).labels
        assert np.sum(others == 0) == np.sum(labels == 0)
        assert np.sum(others != 0) == -(-np.sum(labels != 0) // 10)
    assert np.array_equal(thinned.val_clean.ids, thinned.val_biased.ids)
    assert thinned.learned is whole.train
    assert thinned.test_clean is whole.test_clean
    assert replace(plan, subset_correction=None).thinned(whole) is whole


def test_disk_is_checked_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = Single(), Plan(model="demo")
    images = sum(len(getattr(study.data("demo"), name)) for name in SETS)
    model, example = build_model("demo", classes=4).eval(), study.data("demo").train.batch([0]).image
    cut = split(model, architecture_named("demo").layer, example=example)
    at_layer, after = (
        sum(part.numel() for part in live) for live in (cut.trunk(example), cut.phi(*cut.trunk(example)))
    )
    whole = check_disk([(study, plan)], tmp_path)
    assert whole == images * 4 * (at_layer + 6 * after)
    assert check_disk([(study, replace(plan, precision="float16"))], tmp_path) == whole - 2 * images * at_layer
    assert check_disk([(study, plan), (study, plan)], tmp_path) == 2 * whole
    (tmp_path / "activations").mkdir()
    (tmp_path / "activations" / "shard").write_bytes(bytes(1000))
    assert check_disk([(study, plan)], tmp_path) == whole - 1000, "a resumed run has some of them"
    usage = shutil.disk_usage(tmp_path)._replace(free=whole - 1001)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RunError, match=r"Choose another folder .--work.*--subset-correction"):
        reproduce("table1", [(study, plan)], out=tmp_path / "out", work=tmp_path)
    assert not (tmp_path / "models").exists()
