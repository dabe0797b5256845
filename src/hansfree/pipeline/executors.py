"""Where the tasks of a run are executed: in this process, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from hansfree._internal.progress import Progress
from hansfree._internal.store import RunStore
from hansfree.corrections import method_named
from hansfree.corrections.training import group_strengths
from hansfree.errors import OptionError, check_choice
from hansfree.evaluation import ORIGINAL
from hansfree.pipeline.checks import PreparedRun
from hansfree.pipeline.config import is_deep
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.paths import HeadPath, Task

_MIN_GROUPS = 3  # trained in parallel: the selected one is trained again for its weights, so two gain nothing


def plan_tasks(experiment: Experiment, name: str) -> list[list[Task]]:
    """Return a method's missing tasks in rounds: the tasks of a round need the rounds before, not each other."""
    has = experiment.run.has
    rounds = [[Task(name)]]
    if name != ORIGINAL:
        groups = [Task(name, "strengths", number) for number in range(0 if has(name) else _groups(experiment, name))]
        seeds = [Task(name, "seed", seed) for seed in experiment.further_seeds(experiment.plain(name))]
        rounds = [groups, [Task(name)], seeds]
    missing = ([task for task in tasks if not has(task.name)] for tasks in rounds)
    return [tasks for tasks in missing if tasks]


def run_task(experiment: Experiment, task: Task) -> None:
    """Run one task, unless it is finished."""
    if task.method == ORIGINAL:
        experiment.original_rows()
        return
    spec = experiment.plain(task.method)
    if task.kind == "strengths":

        def train() -> list[dict[str, Any]]:
            path = experiment.path(spec)
            assert isinstance(path, HeadPath), "deep methods are not split by strength"
            return path.train_group(task.number)

        experiment.run.stage(task.name, train)
    elif task.kind == "seed":
        experiment.repeated_rows(spec, task.number)
    else:
        experiment.selection(spec)


def _groups(experiment: Experiment, name: str) -> int:
    """Return into how many tasks a method's strengths are split; 0 if they stay together."""
    if is_deep(name):  # whole networks are trained one after the other
        return 0
    # The class is enough: an instance may need masks, which take long.
    strengths = experiment.strengths(experiment.plain(name), method_named(name))
    groups = group_strengths(experiment.workspace.cut, strengths, experiment.setting.tuning)
    return len(groups) if len(groups) >= _MIN_GROUPS else 0


ExecutorName = Literal["local", "ray"]


class Executor(Protocol):
    """Computes files of the run store ahead of the run; what it leaves out, the run computes itself."""

    def collect(self) -> None:
        """Compute the shards of activations that are missing."""

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Run the tasks of the methods that are missing; the CAVs exist already."""


ExecutorFactory = Callable[[PreparedRun, RunStore, Progress], AbstractContextManager[Executor]]


class LocalExecutor:
    """Computes nothing ahead: the run executes all stages one after the other in this process."""

    def collect(self) -> None:
        """Leave it to the run."""

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Leave it to the run."""


@contextmanager
def local_executor(prepared: PreparedRun, store: RunStore, progress: Progress) -> Iterator[Executor]:
    """Yield the executor of this process."""
    yield LocalExecutor()


@contextmanager
def open_executor(name: str, *, address: str | None = None) -> Iterator[ExecutorFactory]:
    """Yield an executor factory by name; raise before any work if it is not available.

    Args:
        address: Of a Ray cluster, ``HOST:PORT`` or ``auto``. None is the one that Ray finds, in ``RAY_ADDRESS`` or
            running on this machine; if there is none, Ray is started here and stopped at the end of the block.
    """
    check_choice("engine", name, ExecutorName)
    if name == "local":
        if address is not None:
            raise OptionError("An address is that of a Ray cluster. Add --engine ray.")
        yield local_executor
        return
    from hansfree.pipeline.ray import connected, ray_executor  # it imports this module

    with connected(address) as ray:
        yield partial(ray_executor, ray)


def weights_file(store: RunStore) -> Path:
    """Return the file in which a run stores the weights of the original model."""
    return store.path / "original.safetensors"
