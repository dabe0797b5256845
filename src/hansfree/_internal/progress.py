"""Progress of long work, without knowledge of a terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Something that wraps an iterable and shows how far it has come."""

    def __call__(self, steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        """Yield the steps unchanged."""


def silent(steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
    """Show nothing."""
    return iter(steps)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence hansfree's warnings in a block: they were shown before, or are expected."""
    log = logging.getLogger("hansfree")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


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
        """Exhaust the bar, which marks it as done."""
        for _ in self._steps:
            pass
