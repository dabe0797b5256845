"""A crew of Ray workers: shards and stages that are missing become jobs, and their files the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from typing import Any

import torch

from hansfree.engines.pool import Job, Pool
from hansfree.engines.worker import Task
from hansfree.experiments import Experiment
from hansfree.experiments.spreading import missing_rounds
from hansfree.progress import Progress
from hansfree.results import ORIGINAL
from hansfree.runfile import Opened
from hansfree.runfile.crew import Crew
from hansfree.runfile.running import kept_weights
from hansfree.runs import Run, invited


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
