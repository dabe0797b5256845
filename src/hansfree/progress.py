"""How long work tells that it goes on, without knowing a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Something that wraps an iterable and shows how far it has come."""

    def __call__(self, steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        """Yield the steps unchanged."""


def silent(steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
    """Show nothing."""
    return iter(steps)
