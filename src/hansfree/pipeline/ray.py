"""Run the tasks of a run on a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain, zip_longest
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress
from hansfree._internal.store import RunStore, join_run, join_token
from hansfree.activations import CachePass
from hansfree.errors import HansfreeError, OptionError, RunError, not_installed
from hansfree.evaluation import ORIGINAL
from hansfree.pipeline.checks import PreparedRun, load_run_model
from hansfree.pipeline.config import RunConfig
from hansfree.pipeline.executors import Executor, plan_tasks, run_task, weights_file
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.paths import Task
from hansfree.pipeline.workspace import Setting, keep_in_memory, reads_pictures

_SECONDS = 10  # timeout for a head node to answer; Ray itself waits for minutes


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster for the length of the block; yield the module ``ray``."""
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise not_installed(error.name, extra="ray") from error
    # For a cluster that is started here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address not in (None, "auto"):
        _check_address(str(address))
    try:
        # Output of workers would break the progress bars; their warnings come back with the results.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise RunError(
            f"Cannot connect to Ray at {address or 'the address that it found'} ({reason}). Start it with `ray start "
            "--head`, and run hansfree on a machine of that cluster."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise for an invalid address, and for one that does not answer."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise OptionError(f"The address of the Ray cluster is {address!r}. Allowed: auto, or HOST:PORT.")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(
            f"No answer from {address} ({error}). `ray start --head` on the first machine prints the address."
        ) from error


_RETRIES = 3  # of a task whose worker process or node was lost


def installed() -> dict[str, str]:
    """Return the versions that numbers depend on; they must be the same on all nodes."""
    return {name: version(name) for name in ("hansfree", "torch", "numpy")}


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerSetup:
    """Everything that a worker process needs to join a run, without the model.

    A user's class cannot be sent to a machine that has not imported it, so that every process builds the model from the
    run file, with the weights of the run directory.
    """

    run: RunConfig
    setting: Setting
    weights: str  # fingerprint of the model
    token: str  # to join the run
    working_directory: Path = field(default_factory=Path.cwd)  # where `package.module:function` may be
    versions: dict[str, str] = field(default_factory=installed)

    @classmethod
    def of(cls, prepared: PreparedRun, weights: Path, token: str) -> WorkerSetup:
        """Return the setup of a run.

        Args:
            weights: The file in which the run stores those of the model.
        """
        model = {"weights": str(weights.absolute()), "layer": prepared.setting.layer}
        resolved = {"model": prepared.run.model.model_copy(update=model), "out": prepared.run.out.absolute()}
        return cls(
            run=prepared.run.model_copy(update=resolved),
            setting=replace(prepared.setting, model=nn.Identity()),
            weights=fingerprint_model(prepared.setting.model),
            token=token,
        )


class Worker:
    """A process that has joined a run, with its own model and workspace."""

    def __init__(self, setup: WorkerSetup) -> None:
        if (here := installed()) != setup.versions:
            raise RunError(f"The versions are {here}, where the run was started {setup.versions}. Install the same.")
        self.run: RunStore = join_run(setup.run.out, setup.token)
        with contextlib.suppress(OSError):  # needed for few sources, whose error says what is missing
            os.chdir(setup.working_directory)
        model = load_run_model(setup.run).model
        if fingerprint_model(model) != setup.weights:
            raise RunError(f"{setup.run.model.source} builds another model than where the run was started.")
        # Ray shows each worker its own GPU only, as the first one.
        tuning = replace(setup.setting.tuning, device=torch.device(setup.setting.tuning.device).type)
        network = replace(setup.setting.network, device=tuning.device)
        self.setting = replace(setup.setting, model=model, tuning=tuning, network=network)
        self._plan: tuple[str, CachePass] | None = None
        self._experiment: tuple[bool, Experiment] | None = None

    def collect(self, name: str, rows: range) -> None:
        """Compute one shard of a set."""
        if self._plan is None or self._plan[0] != name:
            self._plan = None  # first, so that two copies of the model are never in memory
            self._plan = (name, Experiment(self.setting, self.run).workspace.plan(name))
        plan = self._plan[1]
        if plan.home is not None:
            plan.fill(plan.home, [rows])

    def correct(self, task: Task) -> None:
        """Run one task of a method, or score the original model."""
        self._plan = None
        run_task(self._experiment_for(task.method), task)

    def _experiment_for(self, method: str) -> Experiment:
        """Return the experiment, with the images in memory for a method that trains on them."""
        in_memory = reads_pictures(method)
        if self._experiment is None or self._experiment[0] != in_memory:
            self._experiment = None  # first, so that two are never in memory
            data = keep_in_memory(self.setting.data) if in_memory else self.setting.data
            self._experiment = (in_memory, Experiment(replace(self.setting, data=data), self.run))
        return self._experiment[1]


class Job(NamedTuple):
    """A call of a worker's method; its result is a file in the run store."""

    label: str  # in errors and in the log
    method: str
    arguments: tuple[Any, ...]


_workers: dict[str, Worker] = {}  # by token: the one workspace of this worker process


def run_job(setup: WorkerSetup, job: Job, threads: int, address: str = "") -> tuple[str, list[str]]:
    """Run a job in this process; return the node's address and the warnings."""
    address = address or importlib.import_module("ray").util.get_node_ip_address()
    torch.set_num_threads(max(1, min(threads, torch.get_num_threads())))
    with _recorded_warnings() as records:
        try:
            if setup.token not in _workers:
                _workers.clear()
                _workers[setup.token] = Worker(setup)
            getattr(_workers[setup.token], job.method)(*job.arguments)
        except HansfreeError as error:
            raise type(error)(f"On the node {address}: {error}") from error
    return address, [record.getMessage() for record in records]


@contextmanager
def _recorded_warnings() -> Iterator[list[logging.LogRecord]]:
    """Collect warnings of hansfree, to show them where the run was started."""
    logger, handler = logging.getLogger("hansfree"), BufferingHandler(sys.maxsize)
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logger.removeHandler(handler)


log = logging.getLogger(__name__)


class RayExecutor:
    """Runs jobs as Ray tasks on the nodes of a cluster, which share the run directory.

    Each task takes a GPU, or as many CPUs as the smallest node has, so that a node's tasks do not compete.

    Args:
        ray: The module, connected to a cluster.
        setup: A reference to the `WorkerSetup`.
    """

    def __init__(self, ray: Any, setup: Any, prepared: PreparedRun, store: RunStore, progress: Progress) -> None:
        self._ray, self._setup, self._store, self._progress = ray, setup, store, progress
        self._setting = prepared.setting
        self._pairs = ["train_biased"] if prepared.run.correction.needs_pairs else []
        on_gpus = torch.device(prepared.setting.tuning.device).type == "cuda"
        self._cpus = task_cpus(ray.nodes(), on_gpus=on_gpus)
        self._remote = ray.remote(run_job).options(
            num_cpus=self._cpus, num_gpus=int(on_gpus), max_retries=_RETRIES, scheduling_strategy="SPREAD"
        )

    def collect(self) -> None:
        """Compute the shards of activations that are missing."""
        workspace = Experiment(self._setting, self._store).workspace
        jobs = [
            Job(f"The images {rows.start} to {rows.stop - 1} of {name}", "collect", (name, rows))
            for name in (*workspace.filled_sets, *self._pairs)
            for rows in workspace.plan(name).missing()
        ]
        for (_, _, (name, rows)), node in self._run([jobs], f"shards at {self._setting.layer} (Ray)"):
            self._store.log(shard=f"{name} {rows.start}-{rows.stop}", node=node)

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Run the tasks of the methods that are missing."""
        planned = [plan_tasks(experiment, name) for name in (ORIGINAL, *methods)]
        rounds = [
            [Job(f"The correction {task.name}", "correct", (task,)) for task in chain(*tasks)]
            for tasks in zip_longest(*planned, fillvalue=())
        ]
        for (_, _, (task,)), node in self._run(rounds, "corrections (Ray)"):
            self._store.log(stage=task.name, node=node)

    def _run(self, rounds: Sequence[Sequence[Job]], label: str) -> Iterator[tuple[Job, str]]:
        """Yield finished jobs with the address of their node; a round starts when the one before has ended."""
        finished = chain.from_iterable(map(self._run_round, rounds))
        return self._progress(finished, total=sum(map(len, rounds)), label=label)

    def _run_round(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        pending = {self._remote.remote(self._setup, job, self._cpus): job for job in jobs}
        try:
            while pending:
                (reference,), _ = self._ray.wait(list(pending), num_returns=1)
                job = pending.pop(reference)
                yield job, self._result(reference, job)
        finally:
            for reference in pending:  # where one failed, or the run was stopped
                self._ray.cancel(reference, force=True)

    def _result(self, reference: Any, job: Job) -> str:
        """Return the node that ran a job; raise the job's own error."""
        exceptions = self._ray.exceptions
        try:
            address, warnings = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            raise (error.cause or error) from None  # without Ray's traceback
        except exceptions.RayError as error:
            raise RunError(
                f"{job.label} failed {_RETRIES + 1} times, as its worker was lost ({type(error).__name__}). Often a "
                "node is out of memory; see the logs of Ray. Run the same command again to resume."
            ) from error
        for warning in warnings:
            log.warning("%s (node %s)", warning, address)
        return str(address)


def task_cpus(nodes: Sequence[dict[str, Any]], *, on_gpus: bool) -> int:
    """Return how many CPUs a task takes: those of the smallest node, or their share of one of its GPUs."""
    kind = "GPU" if on_gpus else "CPU"
    usable = [node["Resources"] for node in nodes if node["Alive"] and int(node["Resources"].get(kind, 0)) >= 1]
    if not usable:
        raise RunError(f"No node of the Ray cluster has a {kind}.")
    shares = (int(each.get("CPU", 0)) // (int(each["GPU"]) if on_gpus else 1) for each in usable)
    return max(1, min(shares))


@contextmanager
def ray_executor(ray: Any, prepared: PreparedRun, store: RunStore, progress: Progress) -> Iterator[Executor]:
    """Yield an executor on the nodes of a cluster."""
    with join_token(store) as token:
        setup = ray.put(WorkerSetup.of(prepared, weights_file(store), token))
        yield RayExecutor(ray, setup, prepared, store, progress)
