"""A worker without a cluster: it joins, makes what it is asked for, and refuses what does not fit."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.store import RunStore, join_token, open_run
from hansfree.errors import RunError
from hansfree.models.weights import write_weights
from hansfree.pipeline.checks import PreparedRun, prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.paths import Task
from hansfree.pipeline.ray import Job, RayExecutor, Worker, WorkerSetup, run_job, task_cpus
from tests.pipeline.user import write_run

JOB = Job("The correction vanilla", "correct", (Task("vanilla"),))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A worker has a process of its own, and here it has not."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prepared(user: Path) -> PreparedRun:
    return prepare_run(read_run_file(write_run(user / "worker.yaml", out="worker/run")))


@pytest.fixture
def task(prepared: PreparedRun, tmp_path: Path) -> Iterator[WorkerSetup]:
    """The task of a run that is open."""
    out = tmp_path / "run"
    moved = replace(prepared, run=prepared.run.model_copy(update={"out": out}))
    with open_run(out, {"a": 1}) as run, join_token(run) as word:
        write_weights(out / "original.safetensors", prepared.setting.model.state_dict())
        yield WorkerSetup.of(moved, out / "original.safetensors", word)


def test_it_corrects_along_what_the_run_joined(user: Path, tmp_path: Path) -> None:
    artifact = {"remove": "lsb", "keep": "brightness"}
    path = write_run(user / "several.yaml", out=str(tmp_path / "run"), artifact=artifact)
    prepared = prepare_run(read_run_file(path))
    out = prepared.run.out
    with open_run(out, {"a": 1}) as run, join_token(run) as word:
        write_weights(out / "original.safetensors", prepared.setting.model.state_dict())
        task = WorkerSetup.of(prepared, out / "original.safetensors", word)
        sent = {name: pickle.loads(pickle.dumps(getattr(task.setting, name))) for name in ("removed", "protected")}
        task = replace(task, setting=replace(task.setting, **sent))
        Experiment(prepared.setting, run).cav_rows()
        joint = (out / "cav-signal-joint.safetensors").stat().st_mtime_ns
        worker = Worker(task)
        worker.correct(Task("p-clarc"))
        assert {row["cav"] for row in run.read("p-clarc")["rows"]} == {"signal: artifact + lsb; kept: brightness"}
        assert (out / "cav-signal-joint.safetensors").stat().st_mtime_ns == joint, "the run made it, once for all"


def test_it_makes_the_shard_and_the_stages_that_the_run_itself_would(task: WorkerSetup, prepared: PreparedRun) -> None:
    worker = Worker(task)
    assert isinstance(task.setting.model, nn.Identity), "the model is not sent"
    plan = Experiment(prepared.setting, RunStore(task.run.out)).workspace.plan("train")
    first, *others = plan.missing()
    worker.collect("train", first)
    assert plan.missing() == others
    Experiment(prepared.setting, RunStore(task.run.out)).cav_rows()
    worker.correct(Task("original"))
    worker.correct(Task("vanilla"))
    assert all(RunStore(task.run.out).has(name) for name in ("original", "vanilla"))
    assert "vanilla" not in (task.run.out / "log.jsonl").read_text(), "the log belongs to who holds the lock"


def test_the_weights_come_from_the_run_folder(task: WorkerSetup, prepared: PreparedRun, user: Path) -> None:
    own = Path(str(prepared.run.model.weights))
    hidden = own.rename(own.with_suffix(".hidden"))
    try:
        worker = Worker(task)
    finally:
        hidden.rename(own)
    assert fingerprint_model(worker.setting.model) == fingerprint_model(prepared.setting.model)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"token": "another"}, r"^On the node here: The run directory .* is not the same here"),
        ({"weights": "another"}, r"^On the node here: .*net\.py:build builds another model"),
        ({"versions": {"hansfree": "9"}}, r"^On the node here: The versions are .*Install the same"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_node(
    task: WorkerSetup, changed: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RunError, match=sentence):
        run_job(replace(task, **changed), JOB, 1, "here")  # type: ignore[arg-type]


def test_one_process_opens_a_run_once_and_returns_warnings(task: WorkerSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Warns:
        def __init__(self, setup: WorkerSetup) -> None:
            opened.append(setup.token)

        def correct(self, task: Task) -> None:
            logging.getLogger("hansfree.x").warning("odd %s", task.method)

    monkeypatch.setattr("hansfree.pipeline.ray.Worker", Warns)
    monkeypatch.setattr("hansfree.pipeline.ray._workers", {})
    assert [run_job(task, JOB, 1, "here") for _ in range(2)] == [("here", ["odd vanilla"])] * 2
    assert opened == [task.token]


def node(cpus: float = 0, gpus: float = 0, *, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus}}


@pytest.mark.parametrize(
    ("nodes", "on_gpus", "cpus"),
    [
        ([node(4), node(16)], False, 4),
        ([node(4, alive=False), node(16), node(0)], False, 16),
        ([node(16, 4), node(8, 1), node(2)], True, 4),
        ([node(1, 4)], True, 1),
    ],
)
def test_a_task_takes_the_cpus_of_the_smallest_node(nodes: list[dict[str, Any]], on_gpus: bool, cpus: int) -> None:
    assert task_cpus(nodes, on_gpus=on_gpus) == cpus


class FakeRay:
    """Ray with results that are known before: an exception is raised by `get`."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            cause: Exception | None = None

        class RayTaskError(RayError):
            pass

    def __init__(self, *results: object) -> None:
        self.results, self.cancelled = list(results), list[int]()

    def nodes(self) -> list[dict[str, Any]]:
        return [node(1)]

    def remote(self, function: object) -> Any:
        counter = iter(range(len(self.results)))
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: next(counter)))

    def wait(self, references: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        return references[:1], references[1:]

    def get(self, reference: int) -> object:
        result = self.results[reference]
        if isinstance(result, Exception):
            raise result
        return result

    def cancel(self, reference: int, force: bool) -> None:
        self.cancelled.append(reference)


def run_round(prepared: PreparedRun, ray: FakeRay) -> list[tuple[Job, str]]:
    executor = RayExecutor(ray, None, prepared, RunStore(Path()), lambda steps, **_: steps)
    return list(executor._run_round([JOB] * len(ray.results)))


def test_the_error_of_a_job_keeps_its_message_and_stops_the_others(prepared: PreparedRun) -> None:
    error = FakeRay.exceptions.RayTaskError()
    error.cause = RunError("On the node a: no folder.")
    ray = FakeRay(("a", []), error, ("a", []))
    with pytest.raises(RunError, match="On the node a: no folder"):
        run_round(prepared, ray)
    assert ray.cancelled == [2]


def test_a_job_that_loses_every_worker_is_an_error(prepared: PreparedRun) -> None:
    with pytest.raises(RunError, match="correction vanilla failed 4 times, as its worker was lost"):
        run_round(prepared, FakeRay(FakeRay.exceptions.RayError()))


def test_warnings_of_workers_name_their_node(prepared: PreparedRun, caplog: pytest.LogCaptureFixture) -> None:
    assert run_round(prepared, FakeRay(("10.0.0.1", ["odd"]))) == [(JOB, "10.0.0.1")]
    assert caplog.messages == ["odd (node 10.0.0.1)"]
