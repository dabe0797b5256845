"""Ray without a cluster: what a worker makes and refuses, what the executor does with its results, wrong options."""

from __future__ import annotations

import logging
import pickle
import socket
import sys
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
from hansfree.errors import HansfreeError, OptionError, RunError
from hansfree.models.weights import write_weights
from hansfree.pipeline.checks import PreparedRun, prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.outcome import weights_file
from hansfree.pipeline.paths import Task
from hansfree.pipeline.ray import RayExecutor, Worker, WorkerSetup, open_executor, run_job, task_cpus
from tests.conftest import Call
from tests.pipeline.user import write_run

TASK = Task("vanilla")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A worker has a process of its own, and here it has not."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prepared(user: Path) -> PreparedRun:
    artifact = {"remove": "lsb", "keep": "brightness"}
    return prepare_run(read_run_file(write_run(user / "worker.yaml", out="worker/run", artifact=artifact)))


@pytest.fixture
def setup(prepared: PreparedRun, tmp_path: Path) -> Iterator[WorkerSetup]:
    """The setup of a run that is open."""
    out = tmp_path / "run"
    moved = replace(prepared, run=prepared.run.model_copy(update={"out": out}))
    with open_run(out, {"a": 1}) as run, join_token(run) as word:
        write_weights(weights_file(run), prepared.setting.model.state_dict())
        found = WorkerSetup.of(moved, run).sent(word)
        sent = {name: pickle.loads(pickle.dumps(getattr(found.setting, name))) for name in ("removed", "protected")}
        yield replace(found, setting=replace(found.setting, **sent))


def test_it_makes_the_shard_and_the_stages_that_the_run_itself_would(setup: WorkerSetup, prepared: PreparedRun) -> None:
    assert isinstance(setup.setting.model, nn.Identity), "the model is not sent"
    own = Path(str(prepared.run.model.weights))
    hidden = own.rename(own.with_suffix(".hidden"))  # the weights come from the run directory
    try:
        worker = Worker(setup)
    finally:
        hidden.rename(own)
    assert fingerprint_model(worker.setting.model) == fingerprint_model(prepared.setting.model)
    run = RunStore(setup.run)
    plan = Experiment(prepared.setting, run).workspace.plan("train")
    first, *others = plan.missing()
    worker.work(Task("train", "shard", first.start))
    assert plan.missing() == others
    Experiment(prepared.setting, run).cav_rows()
    joint = run.path / "cav-signal-joint.safetensors"
    written = joint.stat().st_mtime_ns
    for name in ("original", "p-clarc"):
        worker.work(Task(name))
        assert run.has(name)
    assert {row["cav"] for row in run.read("p-clarc")["rows"]} == {"signal: artifact + lsb; kept: brightness"}
    assert joint.stat().st_mtime_ns == written, "the run made it, once for all"
    assert "p-clarc" not in (run.path / "log.jsonl").read_text(), "the log belongs to who holds the lock"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"token": "another"}, r"^On the node here: The run directory .* is not the same here"),
        ({"weights": "another"}, r"^On the node here: The model that is built here is another one"),
        ({"versions": {"hansfree": "9"}}, r"^On the node here: The versions are .*Install the same"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_node(
    setup: WorkerSetup, changed: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RunError, match=sentence):
        run_job(replace(setup, **changed), TASK, 1, "here")  # type: ignore[arg-type]


def test_one_process_opens_a_run_once_and_returns_warnings(setup: WorkerSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Warns:
        def __init__(self, setup: WorkerSetup) -> None:
            opened.append(setup.token)

        def work(self, task: Task) -> None:
            logging.getLogger("hansfree.x").warning("odd %s", task.method)

    monkeypatch.setattr("hansfree.pipeline.ray.Worker", Warns)
    monkeypatch.setattr("hansfree.pipeline.ray._workers", {})
    assert [run_job(setup, TASK, 1, "here") for _ in range(2)] == [("here", ["odd vanilla"])] * 2
    assert opened == [setup.token]


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


def run_round(prepared: PreparedRun, ray: FakeRay) -> list[tuple[Task, str]]:
    store = RunStore(Path())
    executor = RayExecutor(ray, WorkerSetup.of(prepared, store), None, store, lambda steps, **_: steps)
    return list(executor._run_round([TASK] * len(ray.results)))


def test_the_error_of_a_job_keeps_its_message_and_stops_the_others(prepared: PreparedRun) -> None:
    error = FakeRay.exceptions.RayTaskError()
    error.cause = RunError("On the node a: no folder.")
    ray = FakeRay(("a", []), error, ("a", []))
    with pytest.raises(RunError, match="On the node a: no folder"):
        run_round(prepared, ray)
    assert ray.cancelled == [2]


def test_a_job_that_loses_every_worker_is_an_error(prepared: PreparedRun) -> None:
    with pytest.raises(RunError, match="task vanilla failed 4 times, as its worker was lost"):
        run_round(prepared, FakeRay(FakeRay.exceptions.RayError()))


def test_warnings_of_workers_name_their_node(prepared: PreparedRun, caplog: pytest.LogCaptureFixture) -> None:
    assert run_round(prepared, FakeRay(("10.0.0.1", ["odd"]))) == [(TASK, "10.0.0.1")]
    assert caplog.messages == ["odd (node 10.0.0.1)"]


# Options


def test_without_ray_the_flag_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    code, _, err = call("run", write_run(tmp_path / "run.yaml"), "--engine", "ray")
    assert (code, err) == (1, "Error: ray is not installed. In your copy of the repository: pip install -e '.[ray]'.\n")


@pytest.mark.parametrize(
    ("name", "address", "sentence"),
    [
        ("rai", None, r"engine is 'rai'\. Did you mean 'ray'\?"),
        ("local", "auto", "An address is that of a Ray cluster"),
        ("ray", "ray://head:10001", r"is 'ray://head:10001'\. Allowed: auto, or HOST:PORT"),
        ("ray", "head", r"is 'head'\. Allowed: auto, or HOST:PORT"),
    ],
)
def test_wrong_options_are_refused(name: str, address: str | None, sentence: str) -> None:
    if name == "ray":
        pytest.importorskip("ray")
    with pytest.raises(OptionError, match=sentence), open_executor(name, address=address):
        pass


def test_an_unreachable_address_is_an_error_at_once() -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused for sure
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=rf"^No answer from {address} "), open_executor("ray", address=address):
            pass


def test_what_ray_says_about_a_missing_cluster_becomes_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def fail(**options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nDetails.")

    monkeypatch.setattr(ray, "init", fail)
    with (
        pytest.raises(HansfreeError, match=r"at auto \(Could not find any running Ray instance\)\. Start it"),
        open_executor("ray", address="auto"),
    ):
        pass
