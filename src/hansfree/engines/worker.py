"""One machine's part in a run: a process that holds the model, and makes the shards and stages it is asked for."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from hansfree.activations import CachePass
from hansfree.errors import HansfreeError, RunError
from hansfree.experiments import Experiment, Setting
from hansfree.experiments.spreading import do_stage
from hansfree.experiments.stages import Stage
from hansfree.experiments.subjects import keep_in_memory, reads_pictures
from hansfree.fingerprints import fingerprint_model
from hansfree.runfile import Opened, RunFile
from hansfree.runfile.loading import load_run_model
from hansfree.runs import Run, join_run


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
