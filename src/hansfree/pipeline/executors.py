"""Where the tasks of a run are executed: in this process, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from hansfree._internal.progress import Progress
from hansfree._internal.store import RunStore
from hansfree.errors import OptionError, check_choice
from hansfree.pipeline.checks import PreparedRun
from hansfree.pipeline.experiment import Experiment

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
