"""Who may do the two long parts of a run ahead of it: the pass of all images, and the corrections.

A run looks for what is kept before it computes anything. So help is a matter of files: whoever makes shards and stages
in the run's folder beforehand has helped, and the results come from the same code as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from hansfree.experiments import Experiment
from hansfree.progress import Progress
from hansfree.runfile.opening import Opened
from hansfree.runs import Run


class Crew(Protocol):
    """Hands that make files which the run would otherwise make itself; each call ends when all are there."""

    def collect(self) -> None:
        """Make the shards of the cache that are missing."""

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Do the stages of these methods that are missing; the CAVs are there already."""


Engine = Callable[[Opened, Run, Progress], AbstractContextManager[Crew]]
"""Calls a crew together for an open run, and lets it go."""


class Nobody:
    """A crew of none: the run does all itself."""

    def collect(self) -> None:
        """Leave it to the run."""

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Leave it to the run."""


@contextmanager
def alone(opened: Opened, folder: Run, progress: Progress) -> Iterator[Crew]:
    """Give the run no crew: this process on this machine."""
    yield Nobody()
