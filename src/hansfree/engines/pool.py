"""Workers on all nodes of a cluster, and jobs that each go to one of them until they are done."""

from __future__ import annotations

import importlib
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hansfree.engines.worker import Worker
from hansfree.errors import RunError

log = logging.getLogger(__name__)

_MOST_LOSSES = 3  # of workers, by one job or at one seat, after which it is not tried again
_SECONDS = 10  # between two looks for nodes that came or went, while nothing else happens


class Job(NamedTuple):
    """A call of a worker's method; its result is a file."""

    label: str  # what errors and the log call it
    method: str
    arguments: tuple[Any, ...]


class Seat(NamedTuple):
    """Room for one worker: a node with all of its CPUs, or one of its GPUs with its share of them."""

    node: str
    address: str
    number: int
    cpus: int
    gpus: int


class Pool:
    """Workers that are put on every node, also on those that join later, and replaced where they are lost.

    Args:
        ray: The module, connected to a cluster.
        task: A reference to what each worker opens first.
        on_gpus: One worker for each GPU; otherwise one for each node.
    """

    def __init__(self, ray: Any, task: Any, *, on_gpus: bool) -> None:
        self._ray, self._task, self._on_gpus = ray, task, on_gpus
        self._workers: dict[Seat, Any] = {}
        self._opening: dict[Any, Seat] = {}
        self._idle: list[Seat] = []
        self._losses: Counter[Seat] = Counter()
        self._has_opened = False  # a worker: so the run is one that can be opened

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
        """Do all jobs; yield each when it is done, with the address of the node that did it.

        A job whose worker is lost goes to another one. What a job itself raises is raised here.
        """
        todo, busy = deque(jobs), dict[Any, tuple[Seat, Job, Any]]()
        losses: Counter[Job] = Counter()
        is_told = False
        while todo or busy:
            self._recruit()
            while todo and self._idle:
                job, seat = todo.popleft(), self._idle.pop(0)
                worker = self._workers[seat]
                begun = worker.begin.remote()
                busy[getattr(worker, job.method).remote(*job.arguments)] = (seat, job, begun)
            if not (busy or self._opening):
                raise RunError(self._why_nobody())
            done, _ = self._ray.wait([*busy, *self._opening], num_returns=1, timeout=_SECONDS)
            if not (done or busy or is_told):
                log.warning("No node of the Ray cluster is free yet: waiting for one.")
                is_told = True
            for one in done:
                if one in self._opening:
                    seat = self._opening.pop(one)
                    if self._opens(one, seat):
                        self._idle.append(seat)
                    continue
                seat, job, begun = busy.pop(one)
                if self._is_well(one, seat):
                    self._idle.append(seat)
                    yield job, seat.address
                    continue
                losses[job] += self._has_begun(begun)
                if losses[job] == _MOST_LOSSES:
                    raise RunError(
                        f"{job.label} ended {_MOST_LOSSES} workers, the last on the node {seat.address}: most often "
                        "memory ran out. The logs of Ray on that node tell more."
                    )
                todo.appendleft(job)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            self._ray.kill(worker)

    def _recruit(self) -> None:
        """Put a worker on every seat that has none."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        for seat in self._seats():
            if seat in self._workers or self._losses[seat] >= _MOST_LOSSES:
                continue
            there = strategies.NodeAffinitySchedulingStrategy(seat.node, soft=False)
            options = {"num_cpus": seat.cpus, "num_gpus": seat.gpus, "scheduling_strategy": there}
            worker = self._ray.remote(Worker).options(max_restarts=0, **options).remote()
            self._workers[seat] = worker
            self._opening[worker.open.remote(self._task, seat.cpus, seat.address)] = seat

    def _seats(self) -> Iterator[Seat]:
        for node in self._ray.nodes():
            resources = node["Resources"]
            cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
            count = gpus if self._on_gpus else min(1, cpus)
            if node["Alive"]:
                for number in range(count):
                    yield Seat(node["NodeID"], node["NodeManagerAddress"], number, cpus // count, int(self._on_gpus))

    def _opens(self, done: Any, seat: Seat) -> bool:
        """Tell whether a worker has opened the run.

        What the first one says stops the run: it may be true of all. Later it is a matter of that node alone.
        """
        try:
            is_well = self._is_well(done, seat)
        except Exception as error:  # whatever a node lacks
            if not self._has_opened:
                raise
            log.warning("A worker on the node %s is not used. %s", seat.address, error)
            self._give_up(seat)
            return False
        self._has_opened |= is_well
        return is_well

    def _has_begun(self, begun: Any) -> bool:
        """Tell whether a worker came to its job at all: one that was lost while it waited says nothing about it."""
        try:
            self._ray.get(begun)
        except self._ray.exceptions.RayError:
            return False
        return True

    def _is_well(self, done: Any, seat: Seat) -> bool:
        """Raise what went wrong in the work; tell whether the worker is still there."""
        exceptions = self._ray.exceptions
        try:
            warnings: Sequence[str] = self._ray.get(done)
        except exceptions.RayTaskError as error:
            raise (error.cause or error) from None  # the sentence, without Ray's account of where it came from
        except exceptions.RayError as error:
            log.warning("A worker on the node %s is lost (%s).", seat.address, type(error).__name__)
            self._give_up(seat)
            return False
        for warning in warnings:
            log.warning("%s (node %s)", warning, seat.address)
        return True

    def _give_up(self, seat: Seat) -> None:
        # One that only cannot be reached may live on: it must not go on beside its successor.
        self._ray.kill(self._workers.pop(seat))
        self._losses[seat] += 1

    def _why_nobody(self) -> str:
        if not self._losses:
            return f"No node of the Ray cluster has a {'GPU' if self._on_gpus else 'CPU'} to work on."
        places = ", ".join(sorted({seat.address for seat in self._losses}))
        return (
            f"All workers are lost, on the nodes {places}. The same command goes on from where it stopped, as soon as "
            "there are nodes again."
        )
