"""Run the tasks of a run ahead of it, on a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain, zip_longest
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress
from hansfree._internal.store import RunStore, join_run, join_token
from hansfree.activations import CachePass
from hansfree.errors import HansfreeError, OptionError, RunError, check_choice, import_optional
from hansfree.pipeline.checks import PreparedRun, load_run_model
from hansfree.pipeline.config import RunConfig
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.outcome import weights_file
from hansfree.pipeline.paths import Task
from hansfree.pipeline.workspace import MethodSpec, Setting, Workspace

log = logging.getLogger(__name__)

_SECONDS = 10  # timeout for a head node to answer; Ray itself waits for minutes
_RETRIES = 3  # of a task whose worker process or node was lost

ExecutorName = Literal["local", "ray"]


def installed() -> dict[str, str]:
    """Return the versions that numbers depend on; they must be the same on all nodes."""
    return {name: version(name) for name in ("hansfree", "torch", "numpy")}


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerSetup:
    """Everything that a worker process needs to join a run.

    A user's class cannot be sent to a machine that has not imported it, so that every process builds the model itself.

    Args:
        build: Returns the setting's model, on every machine.
        specs: The corrections that are run.
        run: The run directory, and ``cache`` that of the activations.
    """

    setting: Setting
    build: Callable[[], nn.Module]
    specs: Sequence[MethodSpec]
    run: Path
    cache: Path
    weights: str = ""  # fingerprint of the model
    token: str = ""  # to join the run
    working_directory: Path = field(default_factory=Path.cwd)  # where `package.module:function` may be
    versions: dict[str, str] = field(default_factory=installed)

    @classmethod
    def of(cls, prepared: PreparedRun, store: RunStore) -> WorkerSetup:
        """Return the setup of a run, which has stored the weights of its model."""
        model = {"weights": str(weights_file(store).absolute()), "layer": prepared.setting.layer}
        run = prepared.run.model_copy(update={"model": prepared.run.model.model_copy(update=model)})
        specs = [MethodSpec.plain(name) for name in run.correction.trials]
        folder = store.path.absolute()
        build = partial(_build_run_model, run)
        return cls(setting=prepared.setting, build=build, specs=specs, run=folder, cache=folder / "activations")

    def sent(self, token: str) -> WorkerSetup:
        """Return what is sent to the workers: all but the model."""
        setting = replace(self.setting, model=nn.Identity())
        return replace(self, setting=setting, weights=fingerprint_model(self.setting.model), token=token)


def _build_run_model(run: RunConfig) -> nn.Module:
    return load_run_model(run).model


class Worker:
    """A process that has joined a run, with its own model and workspace."""

    def __init__(self, setup: WorkerSetup) -> None:
        if (here := installed()) != setup.versions:
            raise RunError(f"The versions are {here}, where the run was started {setup.versions}. Install the same.")
        self.run: RunStore = join_run(setup.run, setup.token)
        with contextlib.suppress(OSError):  # needed for few sources, whose error says what is missing
            os.chdir(setup.working_directory)
        model = setup.build()
        if fingerprint_model(model) != setup.weights:
            raise RunError("The model that is built here is another one than where the run was started.")
        # Ray shows each worker its own GPU only, as the first one.
        tuning = replace(setup.setting.tuning, device=torch.device(setup.setting.tuning.device).type)
        network = replace(setup.setting.network, device=tuning.device)
        self.setting = replace(setup.setting, model=model, tuning=tuning, network=network)
        self.cache, self.specs = setup.cache, {spec.name: spec for spec in setup.specs}
        self._plan: tuple[str, CachePass] | None = None

    def work(self, task: Task) -> None:
        """Compute one shard of a set, or run one task of a method."""
        if task.kind != "shard":
            self._plan = None
            self._experiment.run_task(task, self.specs.get(task.method))
            return
        if self._plan is None or self._plan[0] != task.method:
            self._plan = None  # first, so that two copies of the model are never in memory
            workspace = Workspace(self.setting, self.run.path, self.cache)
            self._plan = (task.method, workspace.plan(task.method))
        plan = self._plan[1]
        if plan.home is not None:
            plan.fill(plan.home, [rows for rows in plan.ranges if rows.start == task.number])

    @cached_property
    def _experiment(self) -> Experiment:
        return Experiment(self.setting.in_memory([*self.specs.values()]), self.run, cache=self.cache)


_workers: dict[str, Worker] = {}  # by token: the one workspace of this worker process


def run_job(setup: WorkerSetup, task: Task, threads: int, address: str = "") -> tuple[str, list[str]]:
    """Run a task in this process; return the node's address, and warnings to show where the run was started."""
    address = address or importlib.import_module("ray").util.get_node_ip_address()
    torch.set_num_threads(max(1, min(threads, torch.get_num_threads())))
    logger, handler = logging.getLogger("hansfree"), BufferingHandler(sys.maxsize)
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        if setup.token not in _workers:
            _workers.clear()
            _workers[setup.token] = Worker(setup)
        _workers[setup.token].work(task)
    except HansfreeError as error:
        raise type(error)(f"On the node {address}: {error}") from error
    finally:
        logger.removeHandler(handler)
    return address, [record.getMessage() for record in handler.buffer]


class RayExecutor:
    """Runs tasks on the nodes of a cluster, which share the run directory; what it leaves out, the run does itself.

    Each task takes a GPU, or as many CPUs as the smallest node has, so that a node's tasks do not compete.

    Args:
        ray: The module, connected to a cluster.
        sent: A reference to the setup as the workers get it.
    """

    def __init__(self, ray: Any, setup: WorkerSetup, sent: Any, store: RunStore, progress: Progress) -> None:
        self._ray, self._setup, self._sent, self._store, self._progress = ray, setup, sent, store, progress
        on_gpus = torch.device(setup.setting.tuning.device).type == "cuda"
        self._cpus = task_cpus(ray.nodes(), on_gpus=on_gpus)
        self._remote = ray.remote(run_job).options(
            num_cpus=self._cpus, num_gpus=int(on_gpus), max_retries=_RETRIES, scheduling_strategy="SPREAD"
        )

    def collect(self, *, pairs: bool = False) -> None:
        """Compute the shards of activations that are missing, on request also those of the counterfactual pairs."""
        setting = self._setup.setting
        workspace = Workspace(setting, self._store.path, self._setup.cache)
        names = [*workspace.filled_sets, *["train_biased"] * pairs]
        tasks = [Task(name, "shard", rows.start) for name in names for rows in workspace.plan(name).missing()]
        self._run([tasks], f"shards at {setting.layer} (Ray)")

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Run the tasks of the methods that are missing; the CAVs exist already."""
        specs = {spec.name: spec for spec in self._setup.specs}
        planned = [experiment.plan_tasks(name, specs.get(name)) for name in methods]
        self._run([[*chain(*tasks)] for tasks in zip_longest(*planned, fillvalue=[])], "corrections (Ray)")

    def _run(self, rounds: Sequence[Sequence[Task]], label: str) -> None:
        """Run all tasks; a round starts when the one before has ended."""
        finished = chain.from_iterable(map(self._run_round, rounds))
        for task, node in self._progress(finished, total=sum(map(len, rounds)), label=label):
            self._store.log(**{"shard" if task.kind == "shard" else "stage": task.name}, node=node)

    def _run_round(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, str]]:
        """Yield finished tasks with the address of their node."""
        pending = {self._remote.remote(self._sent, task, self._cpus): task for task in tasks}
        try:
            while pending:
                (reference,), _ = self._ray.wait(list(pending), num_returns=1)
                task = pending.pop(reference)
                yield task, self._result(reference, task)
        finally:
            for reference in pending:  # where one failed, or the run was stopped
                self._ray.cancel(reference, force=True)

    def _result(self, reference: Any, task: Task) -> str:
        """Return the node that ran a task; raise the task's own error."""
        exceptions = self._ray.exceptions
        try:
            address, warnings = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            raise (error.cause or error) from None  # without Ray's traceback
        except exceptions.RayError as error:
            raise RunError(
                f"The task {task.name} failed {_RETRIES + 1} times, as its worker was lost ({type(error).__name__}). "
                "Often a node is out of memory; see the logs of Ray. Run the same command again to resume."
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


ExecutorFactory = Callable[[WorkerSetup, RunStore, Progress], AbstractContextManager[RayExecutor]]


@contextmanager
def open_executor(name: str, *, address: str | None = None) -> Iterator[ExecutorFactory | None]:
    """Connect to a cluster for the length of the block, or raise before any work; None runs tasks in this process.

    Args:
        address: Of a Ray cluster, ``HOST:PORT`` or ``auto``. None is the one that Ray finds, in ``RAY_ADDRESS`` or
            running on this machine; if there is none, Ray is started here and stopped at the end of the block.
    """
    check_choice("engine", name, ExecutorName)
    if name == "local":
        if address is not None:
            raise OptionError("An address is that of a Ray cluster. Add --engine ray.")
        yield None
        return
    ray = import_optional("ray", extra="ray")
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
        yield partial(_ray_executor, ray)
    finally:
        ray.shutdown()


@contextmanager
def _ray_executor(ray: Any, setup: WorkerSetup, store: RunStore, progress: Progress) -> Iterator[RayExecutor]:
    with join_token(store) as token:
        yield RayExecutor(ray, setup, ray.put(setup.sent(token)), store, progress)


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
