"""Who does which job, when workers are lost: with a cluster that is played, step by step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hansfree.engines.ray import Job, Pool
from hansfree.errors import DataError, RunError

ray_errors = pytest.importorskip("ray").exceptions


class Lost(ray_errors.RayError):  # type: ignore[name-defined, misc]
    """What Ray says of a worker that is gone."""


class Played:
    """As much of Ray as the pool uses; calls are done in the order of their start, and ``act`` says how each ends."""

    exceptions = ray_errors

    def __init__(self, nodes: dict[str, dict[str, float]], act: Callable[[str, str, tuple[Any, ...]], Any]) -> None:
        self.alive, self.act = nodes, act
        self.killed: list[str] = []
        self.started: list[dict[str, Any]] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"Alive": True, "NodeID": name.ljust(56, "0"), "NodeManagerAddress": name, "Resources": resources}
            for name, resources in self.alive.items()
        ]

    def remote(self, _worker: type) -> Any:
        def options(**chosen: Any) -> Any:
            self.started.append(chosen)
            node = chosen["scheduling_strategy"].node_id.rstrip("0")
            call = lambda method: SimpleNamespace(remote=lambda *given: (node, method, given))  # noqa: E731
            methods = {method: call(method) for method in ("open", "begin", "collect")}
            return SimpleNamespace(remote=lambda: SimpleNamespace(node=node, **methods))

        return SimpleNamespace(options=options)

    def wait(self, calls: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return calls[-num_returns:], calls[:-num_returns]  # workers open before anybody's job is done

    def get(self, call: tuple[str, str, tuple[Any, ...]]) -> Any:
        return self.act(*call)

    def kill(self, worker: Any) -> None:
        self.killed.append(worker.node)


TWO = {"a": {"CPU": 4.0}, "b": {"CPU": 2.0}}
JOBS = [Job(f"job {i}", "collect", ("train", i)) for i in range(5)]


def test_all_jobs_are_done_once_by_one_worker_for_each_node() -> None:
    ray = Played(TWO, lambda node, method, given: [])
    done = [job for job, _ in Pool(ray, None, on_gpus=False).run(JOBS)]
    assert sorted(done) == JOBS
    assert [(one["num_cpus"], one["num_gpus"]) for one in ray.started] == [(4, 0), (2, 0)]


def test_gpus_have_a_worker_each_with_their_share_of_the_cpus() -> None:
    ray = Played({"a": {"CPU": 9.0, "GPU": 2.0}, "b": {"CPU": 4.0}}, lambda node, method, given: [])
    assert len(list(Pool(ray, None, on_gpus=True).run(JOBS))) == 5
    assert [(one["num_cpus"], one["num_gpus"]) for one in ray.started] == [(4, 1), (4, 1)]


def test_a_node_that_dies_gives_its_job_to_another() -> None:
    def act(node: str, method: str, given: tuple[Any, ...]) -> list[str]:
        if node == "b" and method == "collect":
            ray.alive.pop("b", None)
            raise Lost("gone")
        return []

    ray = Played(dict(TWO), act)
    done = list(Pool(ray, None, on_gpus=False).run(JOBS))
    assert sorted(job for job, _ in done) == JOBS
    assert {node for _, node in done} == {"a"}
    assert ray.killed == ["b"]


def test_a_job_that_ends_every_worker_is_not_tried_for_ever() -> None:
    def act(node: str, method: str, given: tuple[Any, ...]) -> list[str]:
        if given == ("train", 3):
            raise Lost("out of memory")
        return []

    with pytest.raises(RunError, match=r"^job 3 ended 3 workers"):
        list(Pool(Played(TWO, act), None, on_gpus=False).run(JOBS))


def test_workers_that_were_lost_while_idle_do_not_count_against_a_job() -> None:
    def act(node: str, method: str, given: tuple[Any, ...]) -> list[str]:
        if node != "a" and method != "open":
            raise Lost("gone")
        return []

    ray = Played({name: {"CPU": 1.0} for name in "abcd"}, act)
    done = list(Pool(ray, None, on_gpus=False).run(JOBS[:1]))
    assert done == [(JOBS[0], "a")]
    assert ray.killed == ["d", "c", "b"], "as many as a job may end, and it had begun on none of them"


def refused(node: str, method: str, given: tuple[Any, ...]) -> list[str]:
    """Play a node that cannot open the run."""
    if node == "bad" and method == "open":
        cause = RunError("On the node bad: The versions are others.")
        raise ray_errors.RayTaskError("open", "a traceback", cause).as_instanceof_cause()
    return []


def test_a_node_that_joins_and_cannot_open_the_run_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    ray = Played({"bad": {"CPU": 1.0}, "a": {"CPU": 1.0}}, refused)  # the last is the first to open
    with caplog.at_level(logging.WARNING):
        done = list(Pool(ray, None, on_gpus=False).run(JOBS))
    assert {node for _, node in done} == {"a"}
    assert len(done) == len(JOBS)
    assert set(ray.killed) == {"bad"}
    assert set(caplog.messages) == {"A worker on the node bad is not used. On the node bad: The versions are others."}


def test_what_the_first_node_refuses_stops_the_run() -> None:
    ray = Played({"a": {"CPU": 1.0}, "bad": {"CPU": 1.0}}, refused)
    with pytest.raises(RunError, match=r"^On the node bad: The versions are others\.$"):
        list(Pool(ray, None, on_gpus=False).run(JOBS))


def test_when_all_workers_are_lost_the_run_stops() -> None:
    def act(node: str, method: str, given: tuple[Any, ...]) -> list[str]:
        raise Lost("gone")

    with pytest.raises(RunError, match=r"All workers are lost, on the nodes a, b"):
        list(Pool(Played(TWO, act), None, on_gpus=False).run(JOBS))


@pytest.mark.parametrize(("on_gpus", "what"), [(False, "CPU"), (True, "GPU")])
def test_a_cluster_without_room_is_told(on_gpus: bool, what: str) -> None:
    ray = Played({"a": {"memory": 1.0}}, lambda node, method, given: [])
    with pytest.raises(RunError, match=f"has a {what} to work on"):
        list(Pool(ray, None, on_gpus=on_gpus).run(JOBS))


def test_the_error_of_a_job_comes_with_its_own_sentence() -> None:
    def act(node: str, method: str, given: tuple[Any, ...]) -> list[str]:
        if method == "collect":
            cause = DataError("The image x.png cannot be read.")
            raise ray_errors.RayTaskError("collect", "a traceback of forty lines", cause).as_instanceof_cause()
        return []

    with pytest.raises(DataError, match=r"^The image x\.png cannot be read\.$"):
        list(Pool(Played(TWO, act), None, on_gpus=False).run(JOBS))


def test_what_a_worker_warns_of_is_told_with_its_node(caplog: pytest.LogCaptureFixture) -> None:
    ray = Played({"a": {"CPU": 1.0}}, lambda node, method, given: ["A shard is damaged."] * (method == "collect"))
    with caplog.at_level(logging.WARNING):
        list(Pool(ray, None, on_gpus=False).run(JOBS[:1]))
    assert caplog.messages == ["A shard is damaged. (node a)"]
