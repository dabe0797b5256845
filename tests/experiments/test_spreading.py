"""Strengths and seeds that are done apart, in any order, give what one machine gives in one go."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hansfree._internal.store import open_run
from hansfree.corrections import base
from hansfree.corrections.training import head_loop
from hansfree.experiments import Experiment, Setting
from hansfree.experiments.experiment import Stage
from hansfree.experiments.spreading import do_stage, missing_rounds
from hansfree.results import Row
from tests.experiments.examples import Single, opened

STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1e30)  # the last one diverges
NAME = "rr-clarc"
APART = [Stage(NAME, "strengths", number) for number in range(3)]
SEEDS = [Stage(NAME, "seed", seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setting, Path]:
    """A setting, and where its activations lie."""
    work, study = tmp_path_factory.mktemp("work"), Single(artifact="timestamp")
    with opened(work, study, strengths={NAME: STRENGTHS}, repeats=3) as subject:
        subject.experiment.cav_rows()
        return subject.experiment.setting, subject.experiment.material.cache


@contextmanager
def experiment(made: tuple[Setting, Path], folder: Path) -> Iterator[Experiment]:
    with open_run(folder, {"tiny": True}) as run:
        yield Experiment(made[0], run, cache=made[1])


@pytest.fixture
def trained(made: tuple[Setting, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """Two heads at most are trained together; the strengths of every training are noted."""
    with experiment(made, tmp_path / "size") as one:
        one.cav_rows()
        size = 4 * sum(parameter.numel() for parameter in one.material.cut.head_parameters().values())
    monkeypatch.setattr(head_loop, "_STACKED_BYTES", 2 * size)
    seen: list[list[float]] = []
    train = base.train_heads

    def noted(cut: Any, features: Any, objective: Any, strengths: list[float], *rest: Any, **more: Any) -> Any:
        seen.append(list(strengths))
        return train(cut, features, objective, strengths, *rest, **more)

    monkeypatch.setattr(base, "train_heads", noted)
    return seen


def outcome(one: Experiment) -> tuple[list[Row], dict[str, Any], bytes]:
    """Return all that a method leaves: scores, choice and weights."""
    rows, choice = one.rows_for(one.plain(NAME)), one.selection(one.plain(NAME))
    return rows, choice, (one.run.path / "corrected" / f"{NAME}.safetensors").read_bytes()


def test_all_stages_in_any_order_are_one_go(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path
) -> None:
    with experiment(made, tmp_path / "alone") as one:
        expected = outcome(one)
    chosen = expected[1]["strength"]
    assert expected[1]["diverged"] == [1e30]
    assert trained == [list(STRENGTHS), [chosen], [chosen]]
    trained.clear()
    with experiment(made, tmp_path / "apart") as one:
        assert missing_rounds(one, NAME) == [APART, [Stage(NAME)], SEEDS]
        for stage in (*reversed(APART), Stage(NAME), *reversed(SEEDS)):
            do_stage(Experiment(made[0], one.run, cache=made[1]), stage)  # each on a machine of its own
        groups = [[0.1, 1.0], [10.0, 100.0], [1e30]]
        (again,) = (group for group in groups if chosen in group)
        assert trained == [*reversed(groups), again, [chosen], [chosen]]
        assert missing_rounds(one, NAME) == []
        assert outcome(one) == expected


def test_a_group_that_is_trained_once_more_warns_once(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = replace(made[0], strengths={NAME: (0.1, 1e30)})
    with experiment((setting, made[1]), tmp_path / "run") as one:
        do_stage(one, Stage(NAME, "strengths", 0))
        do_stage(one, Stage(NAME))
    assert trained == [[0.1, 1e30], [0.1, 1e30]]
    assert caplog.messages.count("rr-clarc diverged at strength 1e+30.") == 1
    assert logging.getLogger("hansfree").isEnabledFor(logging.WARNING), "others are heard again"


def test_what_is_left_is_trained_by_the_method_itself(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path
) -> None:
    with experiment(made, tmp_path / "alone") as one:
        expected = outcome(one)
    with experiment(made, tmp_path / "some") as one:
        do_stage(one, APART[1])
        assert missing_rounds(one, NAME)[0] == [APART[0], APART[2]]
        trained.clear()
        assert outcome(one) == expected
    assert trained[0] == [0.1, 1.0, 1e30]


def test_strengths_that_were_grouped_otherwise_are_not_taken(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with experiment(made, tmp_path / "run") as one:
        do_stage(one, APART[0])
        monkeypatch.setattr(head_loop, "_STACKED_BYTES", 1)
        trained.clear()
        do_stage(one, Stage(NAME))
    assert trained == [list(STRENGTHS)]


def test_only_what_pays_is_spread(made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path) -> None:
    together = [[Stage(NAME)], SEEDS]
    with experiment(made, tmp_path / "run") as one, pytest.MonkeyPatch.context() as patch:
        assert missing_rounds(one, "original") == [[Stage("original")]]
        assert missing_rounds(one, "vanilla")[0] == [Stage("vanilla")], "it has one strength"
        patch.setattr(head_loop, "_STACKED_BYTES", 2 * head_loop._STACKED_BYTES)
        assert missing_rounds(one, NAME) == together, "two groups, of which one would be trained again"
        patch.setattr(head_loop, "_STACKED_BYTES", 2**30)
        assert missing_rounds(one, NAME) == together, "small heads are trained in one go"


def test_a_stage_of_an_earlier_version_holds_all_seeds(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path
) -> None:
    with experiment(made, tmp_path / "run") as one:
        expected = outcome(one)
        stages = tmp_path / "run" / "stages"
        whole = json.loads((stages / f"{NAME}.json").read_text())
        for stage in SEEDS:
            whole["result"]["rows"] += one.run.read(stage.name)
            (stages / f"{stage.name}.json").unlink()
        (stages / f"{NAME}.json").write_text(json.dumps(whole))
        trained.clear()
        assert outcome(one) == expected
    assert trained == []
