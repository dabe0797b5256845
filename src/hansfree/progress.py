"""How long work tells that it goes on, without knowing a terminal."""

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
    """Keep back hansfree's warnings for the length of a block: they were told before, or are expected."""
    log = logging.getLogger("hansfree")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
