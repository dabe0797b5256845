"""Run the tasks of a run on a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress
from hansfree._internal.store import Run, invited, join_run
from hansfree.activations import CachePass
from hansfree.errors import HansfreeError, OptionError, RunError, not_installed
from hansfree.experiments import Experiment, Setting
from hansfree.experiments.experiment import Stage
from hansfree.experiments.spreading import do_stage, missing_rounds
from hansfree.experiments.subjects import keep_in_memory, reads_pictures
from hansfree.results import ORIGINAL
from hansfree.runfile import Opened, RunFile
from hansfree.runfile.opening import load_run_model
from hansfree.runfile.running import Crew, kept_weights

_SECONDS = 10  # to wait for a head node to answer; Ray itself goes on for minutes


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, give the module ``ray``, and part from it at the end."""
    ray = _import_ray()
    # Of a cluster that is started here; who started another one has decided.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address not in (None, "auto"):
        _check_address(str(address))
    try:
        # What workers print would break the progress bars; what they warn of comes back with their work.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise RunError(
            f"Ray cannot be reached at {address or 'the address that it found'} ({reason}). Start it with "
            "`ray start --head`, and hansfree on a machine of that cluster."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise not_installed(error.name, extra="ray") from error


def _check_address(address: str) -> None:
    """Refuse what is no address, and one where nobody answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise OptionError(f"The address of the Ray cluster is {address!r}. Allowed: auto, or HOST:PORT.")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(
            f"Nobody answers at {address} ({error}). `ray start --head` on the first machine prints the address."
        ) from error


def installed() -> dict[str, str]:
    """Return the versions that numbers depend on, which must be the same everywhere."""
    return {name: version(name) for name in ("hansfree", "torch", "numpy")}


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """All that a worker needs to take part in a run, without the model: that is made from its source everywhere.

    A user's class cannot be sent to a machine that has not imported it; the run file says how to import it. The weights
    come from the run's folder, so that their own file need not be shared.
    """

    run: RunFile
    setting: Setting
    weights: str  # fingerprint of the model
    word: str  # that joins the run
    working_folder: Path = field(default_factory=Path.cwd)  # where `package.module:function` may lie
    versions: dict[str, str] = field(default_factory=installed)

    @classmethod
    def of(cls, opened: Opened, weights: Path, word: str) -> Task:
        """Return the task that a run is.

        Args:
            weights: Where the run keeps those of the model.
        """
        model = {"weights": str(weights.absolute()), "layer": opened.setting.layer}
        settled = {"model": opened.run.model.model_copy(update=model), "out": opened.run.out.absolute()}
        return cls(
            run=opened.run.model_copy(update=settled),
            setting=replace(opened.setting, model=nn.Identity()),
            weights=fingerprint_model(opened.setting.model),
            word=word,
        )


class Worker:
    """What runs on a node, one for each GPU, or one for all of its CPUs: as the run alone would be there."""

    def open(self, task: Task, threads: int, address: str) -> list[str]:
        """Join the run and load the model; what does not fit here is told with the node's address."""
        torch.set_num_threads(max(1, min(threads, torch.get_num_threads())))
        with _heard() as lines:
            try:
                self._open(task)
            except HansfreeError as error:
                raise type(error)(f"On the node {address}: {error}") from error
        return lines

    def _open(self, task: Task) -> None:
        if (here := installed()) != task.versions:
            raise RunError(f"The versions are {here}, where the run was started {task.versions}. Install the same.")
        run = join_run(task.run.out, task.word)
        with contextlib.suppress(OSError):  # needed for few sources, whose error says what is missing
            os.chdir(task.working_folder)
        model = load_run_model(task.run).model
        if fingerprint_model(model) != task.weights:
            raise RunError(f"{task.run.model.source} makes another model than where the run was started.")
        # Ray shows each worker its own GPU only, as the first one.
        tuning = replace(task.setting.tuning, device=torch.device(task.setting.tuning.device).type)
        self.run: Run = run
        self.setting = replace(task.setting, model=model, tuning=tuning)
        self.planned: tuple[str, CachePass] | None = None
        self.held: tuple[bool, Experiment] | None = None

    def begin(self) -> None:
        """Do nothing: whether it was done tells whether this worker still lived when its next job came."""

    def collect(self, name: str, rows: range) -> list[str]:
        """Make one shard of a set."""
        with _heard() as lines:
            if self.planned is None or self.planned[0] != name:
                self.planned = None  # first, so that two copies of the model are never held
                self.planned = (name, Experiment(self.setting, self.run).material.plan(name))
            plan = self.planned[1]
            if plan.home is not None:
                plan.fill(plan.home, [rows])
        return lines

    def correct(self, stage: Stage) -> list[str]:
        """Do one stage: of a method, or the model as it came."""
        with _heard() as lines:
            self.planned = None
            do_stage(self._experiment(stage.method), stage)
        return lines

    def _experiment(self, method: str) -> Experiment:
        """Return the experiment, with the images in memory for a method that trains on them, epoch after epoch."""
        in_memory = reads_pictures(method)
        if self.held is None or self.held[0] != in_memory:
            self.held = None  # first, so that two are never held
            data = keep_in_memory(self.setting.data) if in_memory else self.setting.data
            self.held = (in_memory, Experiment(replace(self.setting, data=data), self.run))
        return self.held[1]


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """Gather what hansfree warns of, for the terminal where somebody reads it."""
    logger, lines = logging.getLogger("hansfree"), list[str]()
    handler = _Lines(lines)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


log = logging.getLogger(__name__)


_MOST_LOSSES = 3  # of workers, by one job or at one seat, after which it is not tried again


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


class RayCrew:
    """The machines of a cluster, which share the run's folder."""

    def __init__(self, pool: Pool, opened: Opened, folder: Run, progress: Progress) -> None:
        self._pool, self._setting, self._folder, self._progress = pool, opened.setting, folder, progress
        self._pairs = ["train_biased"] if opened.run.correction.needs_pairs else []

    def collect(self) -> None:
        """Make the shards of the cache that are missing, each by whoever is free."""
        material = Experiment(self._setting, self._folder).material
        jobs = [
            Job(f"The images {rows.start} to {rows.stop - 1} of {name}", "collect", (name, rows))
            for name in (*material.filled_sets, *self._pairs)
            for rows in material.plan(name).missing()
        ]
        for (_, _, (name, rows)), node in self._done([jobs], f"shards at {self._setting.layer} (Ray)"):
            self._folder.log(shard=f"{name} {rows.start}-{rows.stop}", node=node)

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Do the stages that are missing, each by whoever is free."""
        waiting = [missing_rounds(experiment, name) for name in (ORIGINAL, *methods)]
        rounds = [
            [Job(f"The correction {stage.name}", "correct", (stage,)) for stage in chain(*stages)]
            for stages in zip_longest(*waiting, fillvalue=())
        ]
        for (_, _, (stage,)), node in self._done(rounds, "corrections (Ray)"):
            self._folder.log(stage=stage.name, node=node)

    def _done(self, rounds: Sequence[Sequence[Job]], label: str) -> Iterator[tuple[Job, str]]:
        """Yield jobs as they are done; a round begins when the one before has ended."""
        done = chain.from_iterable(map(self._pool.run, rounds))
        return self._progress(done, total=sum(map(len, rounds)), label=label)


@contextmanager
def ray_crew(ray: Any, opened: Opened, folder: Run, progress: Progress) -> Iterator[Crew]:
    """Call the workers of a cluster together for a run."""
    with invited(folder) as word:
        task = ray.put(Task.of(opened, kept_weights(folder), word))
        on_gpus = torch.device(opened.setting.tuning.device).type == "cuda"
        pool = Pool(ray, task, on_gpus=on_gpus)
        try:
            yield RayCrew(pool, opened, folder, progress)
        finally:
            pool.close()
