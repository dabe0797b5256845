"""A cache on disk is reused when it belongs here, resumed when it is not whole, and never met by another model."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import collect_activations
from hansfree.errors import OptionError
from tests.activations.samples import Branching, Pictures, branching, small_net

LAYER = "features.4"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def collect(folder: Path, data: Any, **options: Any) -> Any:
    return collect_activations(small_net(), LAYER, data, folder=folder, **{"batch_size": 64, **options})


def test_the_same_is_not_collected_twice(tmp_path: Path) -> None:
    first = collect(tmp_path, Pictures(300))
    before, data = contents(tmp_path), Pictures(300)
    second = collect(tmp_path, data)
    assert data.reads == {0: 1}  # to check the cut
    assert contents(tmp_path) == before
    assert first.folder == second.folder
    assert np.array_equal(first.pooled, second.pooled)


def test_the_trunk_does_not_run_again(tmp_path: Path) -> None:
    model = branching()
    counts = []
    for _ in range(2):
        Branching.forwards = 0
        collect_activations(model, "stem", Pictures(300), folder=tmp_path)
        counts.append(Branching.forwards)
    check = counts[1]  # a few passes of one image, with which the cut is made and checked
    assert counts[0] == 300 + check
    assert check < 10


def test_training_mode_and_another_head_share_a_cache(tmp_path: Path) -> None:
    model = small_net().train()
    first = collect_activations(model, LAYER, Pictures(8), folder=tmp_path)
    other = copy.deepcopy(model).eval()
    with torch.no_grad():
        other.get_parameter("classifier.weight").add_(1)
    assert collect_activations(other, LAYER, Pictures(8), folder=tmp_path).folder == first.folder


def test_whatever_differs_has_a_folder_of_its_own(tmp_path: Path) -> None:
    def folder(model: nn.Module, layer: str = LAYER, data: Any = None, **options: Any) -> Path:
        given = Pictures(8) if data is None else data
        return collect_activations(model, layer, given, folder=tmp_path, **options).folder  # type: ignore[return-value]

    checkpoint, statistics = small_net(), small_net()
    with torch.no_grad():
        checkpoint.get_parameter("features.0.weight")[0, 0, 0, 0] += 1e-6
        statistics.get_buffer("features.4.running_var")[0] += 1e-6
    model = small_net()
    found = [
        folder(model),
        folder(checkpoint),
        folder(statistics),
        folder(model, "features.3"),
        folder(model, "features.5"),
        folder(model, data=Pictures(8, seed=1)),
        folder(model, data=Pictures(9)),
        folder(model, data_key="other"),
        folder(model, data_key="other", data=Pictures(9)),
        folder(model, pooling="mean"),
        folder(model, precision="float16"),
    ]
    assert len(set(found)) == len(found)
    assert folder(model) == found[0]


class Scaled(nn.Module):
    """Prepares images by numbers that are in no weight."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.model = factor, small_net()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images * self.factor)


def test_preprocessing_in_the_model_is_part_of_the_key(tmp_path: Path) -> None:
    one, two = (
        collect_activations(Scaled(factor), f"model.{LAYER}", Pictures(4), folder=tmp_path) for factor in (1.0, 2.0)
    )
    assert one.folder != two.folder
    assert not np.allclose(one.pooled, two.pooled)


def test_data_that_do_not_say_what_they_are_need_a_key(tmp_path: Path) -> None:
    data = Pictures(4)
    del data.fingerprint
    with pytest.raises(OptionError, match=r"Pictures does not say which data it holds.*data_key"):
        collect(tmp_path, data)
    assert not data.reads
    assert not list(tmp_path.iterdir())
    assert collect(tmp_path, data, data_key="mine").folder is not None


def test_resume_collects_only_what_is_missing(tmp_path: Path) -> None:
    broken, data = Pictures(700, fail_at=600), Pictures(700)
    with pytest.raises(OSError, match="disk is gone"):
        collect(tmp_path / "broken", broken)
    left = {Path(name).name for name in contents(tmp_path / "broken")}
    assert left == {
        "about.json",
        "shard-00000000-00000256.safetensors",
        "shard-00000256-00000512.safetensors",
    }  # no temporary file
    collect(tmp_path / "broken", data)
    assert data.reads == Counter([0, *range(512, 700)])
    collect(tmp_path / "whole", Pictures(700))
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_damaged_shard_is_collected_again(tmp_path: Path, keep: int, caplog: pytest.LogCaptureFixture) -> None:
    first = collect(tmp_path, Pictures(300))
    before = contents(tmp_path)
    shard = first.shards[1]
    shard.write_bytes(shard.read_bytes()[:keep])
    data = Pictures(300)
    with caplog.at_level(logging.WARNING):
        collect(tmp_path, data)
    assert "is damaged" in caplog.text
    assert data.reads == Counter([0, *range(256, 300)])
    assert contents(tmp_path) == before


def test_lost_shard_is_collected_again(tmp_path: Path) -> None:
    first = collect(tmp_path, Pictures(300))
    before = contents(tmp_path)
    first.shards[0].unlink()
    collect(tmp_path, Pictures(300))
    assert contents(tmp_path) == before


def test_another_batch_size_does_not_disturb_activations_in_use(tmp_path: Path) -> None:
    first = collect(tmp_path, Pictures(700))
    expected = torch.cat([batch for (batch,) in first.stream()]).clone()
    second = collect(tmp_path, DataLoader(Pictures(700), batch_size=100))
    assert torch.equal(torch.cat([batch for (batch,) in first.stream()]), expected)
    assert torch.allclose(torch.cat([batch for (batch,) in second.stream()]), expected, atol=1e-5)


def test_no_temporary_file_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_shard: Any, path: Path) -> None:
        path.write_bytes(b"half a sh")
        raise OSError("no space left")

    monkeypatch.setattr("hansfree.activations.shards.save_file", full)
    with pytest.raises(OSError, match="no space left"):
        collect(tmp_path, Pictures(8))
    assert {Path(name).name for name in contents(tmp_path)} == {"about.json"}
