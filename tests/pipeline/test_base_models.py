"""The biased model and its reference: trained once, found again, and never mixed up with another's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hansfree.models import build_model
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.subjects import BaseModels, recipe_for
from hansfree.pipeline.workspace import Plan
from tests.pipeline.studies import Single


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
