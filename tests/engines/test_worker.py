"""A worker without a cluster: it joins, makes what it is asked for, and refuses what does not fit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.store import Run, invited, join_run, open_run
from hansfree.engines.ray import Task, Worker
from hansfree.errors import HansfreeError, RunError
from hansfree.experiments import Experiment
from hansfree.experiments.experiment import Stage
from hansfree.runfile import Opened, open_run_file, read_run_file
from hansfree.weights import write_weights
from tests.runfile.examples import write_run


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A worker has a process of its own, and here it has not."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def opened(user: Path) -> Opened:
    return open_run_file(read_run_file(write_run(user / "worker.yaml", out="worker/run")))


@pytest.fixture
def task(opened: Opened, tmp_path: Path) -> Iterator[Task]:
    """The task of a run that is open."""
    out = tmp_path / "run"
    moved = replace(opened, run=opened.run.model_copy(update={"out": out}))
    with open_run(out, {"a": 1}) as run, invited(run) as word:
        write_weights(out / "original.safetensors", opened.setting.model.state_dict())
        yield Task.of(moved, out / "original.safetensors", word)


def test_it_corrects_along_what_the_run_joined(user: Path, tmp_path: Path) -> None:
    artifact = {"remove": "lsb", "keep": "brightness"}
    path = write_run(user / "several.yaml", out=str(tmp_path / "run"), artifact=artifact)
    opened = open_run_file(read_run_file(path))
    out, worker = opened.run.out, Worker()
    with open_run(out, {"a": 1}) as run, invited(run) as word:
        write_weights(out / "original.safetensors", opened.setting.model.state_dict())
        task = Task.of(opened, out / "original.safetensors", word)
        sent = {name: pickle.loads(pickle.dumps(getattr(task.setting, name))) for name in ("removed", "protected")}
        task = replace(task, setting=replace(task.setting, **sent))
        Experiment(opened.setting, run).cav_rows()
        joint = (out / "cav-signal-joint.safetensors").stat().st_mtime_ns
        worker.open(task, 1, "here")
        worker.correct(Stage("p-clarc"))
        assert {row["cav"] for row in run.read("p-clarc")["rows"]} == {"signal: artifact + lsb; kept: brightness"}
        assert (out / "cav-signal-joint.safetensors").stat().st_mtime_ns == joint, "the run made it, once for all"


def test_it_makes_the_shard_and_the_stages_that_the_run_itself_would(task: Task, opened: Opened) -> None:
    worker = Worker()
    worker.open(task, 1, "here")
    assert isinstance(task.setting.model, nn.Identity), "the model is not sent"
    plan = Experiment(opened.setting, Run(task.run.out)).material.plan("train")
    first, *others = plan.missing()
    worker.collect("train", first)
    assert plan.missing() == others
    Experiment(opened.setting, Run(task.run.out)).cav_rows()
    worker.correct(Stage("original"))
    worker.correct(Stage("vanilla"))
    assert all(Run(task.run.out).has(name) for name in ("original", "vanilla"))
    assert "vanilla" not in (task.run.out / "log.jsonl").read_text(), "the log belongs to who holds the lock"


def test_the_weights_come_from_the_run_folder(task: Task, opened: Opened, user: Path) -> None:
    own = Path(str(opened.run.model.weights))
    hidden = own.rename(own.with_suffix(".hidden"))
    worker = Worker()
    try:
        worker.open(task, 1, "here")
    finally:
        hidden.rename(own)
    assert fingerprint_model(worker.setting.model) == fingerprint_model(opened.setting.model)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"word": "another"}, r"^On the node here: The folder of the run, .* is not the same here"),
        ({"weights": "another"}, r"^On the node here: .*net\.py:build makes another model"),
        ({"versions": {"hansfree": "9"}}, r"^On the node here: The versions are .*Install the same"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_node(
    task: Task, changed: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RunError, match=sentence):
        Worker().open(replace(task, **changed), 1, "here")  # type: ignore[arg-type]


def test_images_that_a_node_does_not_see_keep_their_sentence(task: Task, tmp_path: Path) -> None:
    data = task.run.data.model_copy(update={"root": tmp_path / "nowhere"})
    elsewhere = replace(task, run=task.run.model_copy(update={"data": data}))
    with pytest.raises(HansfreeError, match=r"^On the node here: data\.root: there is no folder"):
        Worker().open(elsewhere, 1, "here")


def test_nobody_joins_after_the_end(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"a": 1}) as run:
        with invited(run) as word:
            join_run(run.path, word)
        with pytest.raises(RunError, match="is not the same here"):
            join_run(run.path, word)
