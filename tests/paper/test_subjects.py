"""The paper's subjects: plans, base models and run directories; nothing is computed twice or mixed up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hansfree.data.biased import SETS
from hansfree.data.datasets import InMemory
from hansfree.errors import DataError, HansfreeError
from hansfree.models import build_model
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.subjects import BaseModels, recipe_for, subject_name
from hansfree.pipeline.workspace import Plan, keep_in_memory
from tests.pipeline.studies import Joint, Natural, Single, opened


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "dmo"}, "Did you mean 'demo'"),
        ({"trained": "heads"}, "trained is 'heads'. Did you mean 'head'"),
        ({"corrected": "lst"}, "corrected is 'lst'. Did you mean 'last'"),
        ({"grid": "papers"}, "Did you mean 'paper'"),
        ({"trained": "head"}, "give --weights"),
        ({"weights": "pretraned"}, "no file of weights 'pretraned'. Did you mean 'pretrained'"),
        ({"left_out": ("rrrr",)}, "Did you mean 'rrr'"),
        ({"strengths": {"rr-clrc": (1.0,)}}, "Did you mean 'rr-clarc'"),
        ({"strengths": {"vanilla": (1.0,)}}, "vanilla has no strength"),
        ({"strengths": {"rrr": (1.0, -1.0)}}, "at least 0"),
        ({"strengths": {"rrr": (float("nan"),)}}, "at least 0"),
        ({"strengths": {"rrr": ()}}, "at least 0"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HansfreeError, match=sentence.replace("(", r"\(")):
        Plan(**{"model": "demo", **options})


def test_a_plan_that_can_be_done_is_taken() -> None:
    plan = Plan(
        model="resnet18", weights="pretrained", trained="head", strengths={"rrr": (0.0, 1e7)}, left_out=("rrr",)
    )
    assert plan.epochs is None


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
    fresh = build_model("demo", classes=4)
    assert not torch.equal(first.state_dict()["features.0.weight"], fresh.state_dict()["features.0.weight"])
    assert not any(module.training for module in first.modules())
    monkeypatch.setattr("hansfree.paper.subjects.pretrain", None)  # a training would raise a TypeError
    again, same = train(work)
    assert same == path
    for name, tensor in load_file(path).items():
        assert torch.equal(first.state_dict()[name], tensor)
        assert torch.equal(again.state_dict()[name], tensor)


def test_whatever_the_weights_depend_on_is_in_the_files_name(work: Path, weights: Path) -> None:
    found = [
        train(work)[1],
        train(work, epochs=1)[1],
        train(work, seed=1)[1],
        train(work, weights=str(weights))[1],
        train(work, weights=str(weights), trained="head", epochs=1)[1],
        train(work, Single(artifact="timestamp"))[1],
        train(work, Single(size=40))[1],
        train(work, Single(seed=1))[1],
    ]
    assert len(set(found)) == len(found)
    assert {path.parent for path in found} == {work / "models"}
    assert all(path.name.startswith("single-demo-") for path in found)


def test_training_the_head_leaves_the_trunk_as_it_is(work: Path, weights: Path) -> None:
    model, _ = train(work, weights=str(weights), trained="head", epochs=2)
    start = build_model("demo", classes=4, weights=weights).state_dict()
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
    assert [each.name for each in (tmp_path / "models").iterdir()] == [again.name]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected.state_dict()[name]), name


class Counted:
    """Counts the images that pass through trunks into caches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from hansfree.activations.cache import CachePass

        self.images, run = 0, CachePass._run_trunk

        def counting(plan: CachePass, batches: Any) -> Any:
            for shard in run(plan, batches):
                self.images += len(shard["labels"])
                yield shard

        monkeypatch.setattr(CachePass, "_run_trunk", counting)


def test_shortcuts_of_one_model_share_the_cache_of_clean_images(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    n_clean = Joint.n_val + Joint.n_test
    expected = Joint.n_train + 2 * n_clean
    for artifact in ("timestamp", "brightness"):
        counted.images = 0
        with opened(work, Joint(artifact=artifact)) as subject:
            subject.experiment.cav_rows()
        assert counted.images == expected
        expected = Joint.n_train + n_clean  # other bits for the training images, other biased ones; the clean are there
    counted.images = 0
    with opened(work, Joint(artifact="timestamp")) as subject:
        assert subject.experiment.workspace.activations["train"].has_artifact is not None
    assert counted.images == 0


def test_the_reference_never_saw_the_artifact(work: Path) -> None:
    with opened(work, Joint(artifact="timestamp")) as subject:
        setting = subject.experiment.setting
        reference = setting.reference()
    assert reference is not None
    assert not torch.equal(reference.classifier.weight, setting.model.classifier.weight)
    assert setting.name == "synthetic-timestamp-demo" == subject_name(subject.study, subject.plan)
    assert subject.run.path.parent == work / "runs"
    assert subject.run.path.name.startswith(setting.name)


def test_pretrained_weights_that_know_the_classes_are_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known(Single):
        starts_clean = True

    given, path = build_model("demo", classes=4, seed=3).state_dict(), str(tmp_path / "given.safetensors")
    save_file(given, path)
    monkeypatch.setattr("hansfree.paper.subjects.PRETRAINED", path)  # the demo network has no others
    with opened(tmp_path, Known(), weights=path, epochs=1) as subject:
        reference = subject.experiment.setting.reference()
    assert reference is not None
    assert all(torch.equal(tensor, given[name]) for name, tensor in reference.state_dict().items())
    assert len(list((tmp_path / "models").iterdir())) == 1, "nothing but the biased model was trained"


def test_data_of_which_no_strength_can_be_chosen_are_refused_before_the_training(tmp_path: Path) -> None:
    class Few(Single):
        counts = (160, 40, 40)

    with opened(tmp_path, Few()) as subject, pytest.raises(DataError, match=r"takes 2 classes of at least 25"):
        _ = subject.experiment
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("change", [{"repeats": 2}, {"strengths": {"rrr": (3.0,)}}, {"seed": 1}, {"grid": "paper"}])
def test_another_plan_has_another_folder(change: dict[str, Any], work: Path) -> None:
    with opened(work, Single()) as first, opened(work, Single(), **change) as second:
        assert first.run.path != second.run.path
    with opened(work, Single(size=40)) as third:
        assert third.run.path not in (first.run.path, second.run.path)


def test_small_sets_are_kept_in_memory_and_large_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Single().data("demo")
    kept = keep_in_memory(data)
    for name in (*SETS, "clean_train"):
        mine, theirs = getattr(kept, name), getattr(data, name)
        assert isinstance(mine, InMemory)
        assert (mine.fingerprint, mine.pixel_fingerprint) == (theirs.fingerprint, theirs.pixel_fingerprint)
    one = 4 * 32 * 32  # three channels and the mask
    monkeypatch.setattr("hansfree.pipeline.workspace._MEMORY", (2 * 104 + 130) * one)
    kept = keep_in_memory(data)
    fits = [name for name in (*SETS, "clean_train") if isinstance(getattr(kept, name), InMemory)]
    assert fits == ["train", "val_clean"], "160 and 104 images; what is left has no room for as many again"
    assert keep_in_memory(Natural().data("demo")).clean_train is None
