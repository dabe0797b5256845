"""The chain on a tiny setting: the bias is there before and gone after, and what fails is said."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree.artifacts import Plaster
from hansfree.datasets import InMemory, Stamped, SyntheticLesions
from hansfree.errors import DataError
from hansfree.experiment import Experiment, Setting
from hansfree.models import build_model
from hansfree.results import Row
from hansfree.runs import open_run
from hansfree.training import FineTuning, Pretraining, pretrain


def stamped(n: int, start: int, share: float, only_class: int | None = None) -> InMemory:
    source = SyntheticLesions(n, size=48, classes=2, start=start)
    return InMemory(Stamped(source, Plaster(), share=share, only_class=only_class))


@pytest.fixture(scope="module")
def setting() -> Setting:
    train = stamped(800, 0, 0.5, 0)
    model = build_model("demo", classes=2)
    pretrain(model, train, Pretraining(epochs=6))
    return Setting(
        name="tiny",
        model=model,
        layer="features.10",
        train=train,
        val_clean=stamped(160, 800, 0.0),
        val_biased=stamped(160, 800, 1.0),
        test_clean=stamped(200, 960, 0.0),
        test_biased=stamped(200, 960, 1.0),
        biased_class=0,
        is_localized=True,
        tuning=FineTuning(epochs=10),
        strengths={"rr-clarc": (0.1, 1.0, 10.0), "rrr": (0.1,)},
    )


@pytest.fixture(scope="module")
def done(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Experiment]:
    with open_run(tmp_path_factory.mktemp("runs") / "run", {"tiny": True}) as run:
        experiment = Experiment(setting, run)
        return experiment.rows(), experiment


def value(rows: Sequence[Row], method: str, metric: str) -> float:
    (found,) = (
        r for r in rows if (r.method, r.metric, r.split, r.chosen, r.epoch) == (method, metric, "test", 1, None)
    )
    return found.value


def test_the_bias_is_there_before_and_less_after(done: tuple[list[Row], Experiment]) -> None:
    rows, _ = done
    assert value(rows, "original", "flip_rate") > 0.5
    assert value(rows, "rr-clarc", "flip_rate") < value(rows, "vanilla", "flip_rate") - 0.15


def test_the_pairs_are_those_of_the_table(done: tuple[list[Row], Experiment]) -> None:
    rows, experiment = done
    difference, error = experiment.paired()["vanilla"]["accuracy_biased"]
    expected = value(rows, "rr-clarc", "accuracy_biased") - value(rows, "vanilla", "accuracy_biased")
    assert difference == pytest.approx(expected)
    assert error > 0


def test_every_method_has_a_selection_and_a_heatmap(done: tuple[list[Row], Experiment]) -> None:
    _, experiment = done
    assert set(experiment.selections()) == {"vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"}
    shown = experiment.shown()
    assert shown["relevance/rr-clarc"].shape == shown["masks"].shape


def test_divergence_is_a_result(setting: Setting, tmp_path: Path) -> None:
    """Vanilla diverges by its learning rate, RR-ClArC has no strength that may be taken; the run goes on."""
    broken = replace(
        setting, tuning=FineTuning(epochs=1, learning_rate=1e38), strengths={"rr-clarc": (1e30,), "rrr": (1.0,)}
    )
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        experiment = Experiment(broken, run)
        rows = experiment.rows()
        selections = experiment.selections()
    assert selections["vanilla"]["diverged"] == [None]
    assert "diverged" in selections["vanilla"]["reason"]
    assert selections["rr-clarc"] | {"rule": ""} == {
        "rule": "",
        "strength": None,
        "reason": "no strength is admissible: diverged",
        "diverged": [1e30],
        "admissible": False,
    }
    assert not [row for row in rows if row.method == "rr-clarc" and row.chosen]
    assert not (tmp_path / "run" / "corrected" / "rr-clarc.safetensors").exists()


def test_the_model_is_not_changed(setting: Setting, done: tuple[list[Row], Experiment]) -> None:
    again = copy.deepcopy(setting.model)
    train = stamped(800, 0, 0.5, 0)
    fresh = build_model("demo", classes=2)
    pretrain(fresh, train, Pretraining(epochs=6))
    for name, tensor in fresh.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=0, atol=0)


def test_sets_that_prove_nothing_are_refused(setting: Setting) -> None:
    with pytest.raises(DataError, match="biased images do not carry the artifact"):
        replace(setting, test_biased=setting.test_clean)
    few = copy.copy(setting.val_clean)
    few.labels = np.zeros(len(few), dtype=np.int64)
    few.labels[:10] = 1
    with pytest.raises(DataError, match="only 10 validation images of class 1"):
        replace(setting, val_clean=few)
