"""Many short loops shown as one: a user waits for the doctor, not for each of its tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from hansfree.progress import Progress

T = TypeVar("T")


class OneBar:
    """A `Progress` whose loops all advance the same bar; ``finish`` ends it."""

    def __init__(self, progress: Progress, *, total: int, label: str) -> None:
        self._steps = progress(range(total), total=total, label=label)

    def __call__(self, steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        """Yield the steps unchanged; their own label and total are part of the whole."""
        for step in steps:
            next(self._steps, None)
            yield step

    def finish(self) -> None:
        """Let the bar say that it is done, which it does when it is asked for one step more."""
        for _ in self._steps:
            pass
