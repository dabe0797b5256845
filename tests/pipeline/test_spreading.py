"""Strengths and seeds that are done apart, in any order, give what one machine gives in one go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hansfree._internal.store import open_run
from hansfree.corrections import latent
from hansfree.corrections.training import head_loop
from hansfree.evaluation.results import Row
from hansfree.pipeline.executors import plan_tasks, run_task
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.paths import Task
from hansfree.pipeline.workspace import Setting
from tests.pipeline.studies import Single, opened

STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1e30)  # the last one diverges
NAME = "rr-clarc"
APART = [Task(NAME, "strengths", number) for number in range(3)]
SEEDS = [Task(NAME, "seed", seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setting, Path]:
    """A setting, and where its activations lie."""
    work, study = tmp_path_factory.mktemp("work"), Single(artifact="timestamp")
    with opened(work, study, strengths={NAME: STRENGTHS}, repeats=3) as subject:
        subject.experiment.cav_rows()
        return subject.experiment.setting, subject.experiment.workspace.cache


@contextmanager
def experiment(made: tuple[Setting, Path], folder: Path) -> Iterator[Experiment]:
    with open_run(folder, {"tiny": True}) as run:
        yield Experiment(made[0], run, cache=made[1])


@pytest.fixture
def trained(made: tuple[Setting, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """Two heads at most are trained together; the strengths of every training are noted."""
    with experiment(made, tmp_path / "size") as one:
        one.cav_rows()
        size = 4 * sum(parameter.numel() for parameter in one.workspace.cut.head_parameters().values())
    monkeypatch.setattr(head_loop, "_STACKED_BYTES", 2 * size)
    seen: list[list[float]] = []
    train = latent.train_heads

    def noted(cut: Any, features: Any, objective: Any, strengths: list[float], *rest: Any, **more: Any) -> Any:
        seen.append(list(strengths))
        return train(cut, features, objective, strengths, *rest, **more)

    monkeypatch.setattr(latent, "train_heads", noted)
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
        assert plan_tasks(one, NAME) == [APART, [Task(NAME)], SEEDS]
        for stage in (*reversed(APART), Task(NAME), *reversed(SEEDS)):
            run_task(Experiment(made[0], one.run, cache=made[1]), stage)  # each on a machine of its own
        groups = [[0.1, 1.0], [10.0, 100.0], [1e30]]
        (again,) = (group for group in groups if chosen in group)
        assert trained == [*reversed(groups), again, [chosen], [chosen]]
        assert plan_tasks(one, NAME) == []
        assert outcome(one) == expected


def test_a_group_that_is_trained_once_more_warns_once(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting = replace(made[0], strengths={NAME: (0.1, 1e30)})
    with experiment((setting, made[1]), tmp_path / "run") as one:
        run_task(one, Task(NAME, "strengths", 0))
        run_task(one, Task(NAME))
    assert trained == [[0.1, 1e30], [0.1, 1e30]]
    assert caplog.messages.count("rr-clarc diverged at strength 1e+30.") == 1
    assert logging.getLogger("hansfree").isEnabledFor(logging.WARNING), "others are heard again"


def test_what_is_left_is_trained_by_the_method_itself(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path
) -> None:
    with experiment(made, tmp_path / "alone") as one:
        expected = outcome(one)
    with experiment(made, tmp_path / "some") as one:
        run_task(one, APART[1])
        assert plan_tasks(one, NAME)[0] == [APART[0], APART[2]]
        trained.clear()
        assert outcome(one) == expected
    assert trained[0] == [0.1, 1.0, 1e30]


def test_strengths_that_were_grouped_otherwise_are_not_taken(
    made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with experiment(made, tmp_path / "run") as one:
        run_task(one, APART[0])
        monkeypatch.setattr(head_loop, "_STACKED_BYTES", 1)
        trained.clear()
        run_task(one, Task(NAME))
    assert trained == [list(STRENGTHS)]


def test_only_what_pays_is_spread(made: tuple[Setting, Path], trained: list[list[float]], tmp_path: Path) -> None:
    together = [[Task(NAME)], SEEDS]
    with experiment(made, tmp_path / "run") as one, pytest.MonkeyPatch.context() as patch:
        assert plan_tasks(one, "original") == [[Task("original")]]
        assert plan_tasks(one, "vanilla")[0] == [Task("vanilla")], "it has one strength"
        patch.setattr(head_loop, "_STACKED_BYTES", 2 * head_loop._STACKED_BYTES)
        assert plan_tasks(one, NAME) == together, "two groups, of which one would be trained again"
        patch.setattr(head_loop, "_STACKED_BYTES", 2**30)
        assert plan_tasks(one, NAME) == together, "small heads are trained in one go"
