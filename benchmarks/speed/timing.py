"""The clock, and turns: sides that are compared run one after the other, again and again, and share the weather."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import perf_counter

from hansfree._internal.progress import Progress

Side = Callable[[], float]
"""Does its work once and returns the seconds that it took, or those that it stands for."""


def clock() -> float:
    """Return the seconds since some start: the one clock of the benchmark."""
    return perf_counter()


def timed(work: Callable[[], object]) -> Side:
    """Make a side of work whose seconds are simply those that pass."""

    def side() -> float:
        start = clock()
        work()
        return clock() - start

    return side


def take_turns(
    sides: Mapping[str, Side], *, turns: int, progress: Progress, label: str
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of every side in every turn.

    Every other turn goes backwards, so that a machine that becomes slower or faster favours nobody.
    """
    order = [name for turn in range(turns) for name in (sides if turn % 2 == 0 else reversed(list(sides)))]
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name in progress(order, total=len(order), label=label):
        gc.collect()  # what the last turn left behind in cycles may be gigabytes
        seconds[name].append(sides[name]())
    return {name: tuple(taken) for name, taken in seconds.items()}
