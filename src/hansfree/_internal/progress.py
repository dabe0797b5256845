"""Progress of long work: silent, on one bar, or on bars in the terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

_INTERVAL = 30.0  # seconds between two lines on one task


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


def announce(sentence: str, is_shown: bool) -> None:
    """Write a sentence to the log, and where progress is shown, to stderr."""
    logging.getLogger("hansfree").info(sentence)
    if is_shown:
        print(sentence, file=sys.stderr)


def is_notebook() -> bool:
    """Return whether the code runs in a notebook, whose cells show widgets."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def notebook_bars(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
    """Show a bar of tqdm below the cell."""
    from tqdm.auto import tqdm

    return iter(tqdm(steps, total=total, desc=label, leave=False))


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


@contextmanager
def progress_bars(console: Console | None = None) -> Iterator[Progress]:
    """Show a bar on stderr for everything in progress inside the block, and a line for everything that is finished.

    Finished bars are removed: a terminal shows no more bars than it has lines, and cuts off the newest. If stderr is
    not a terminal, only the lines are written, and one every half minute for what takes longer. In a notebook the bars
    are tqdm's.
    """
    if console is None and is_notebook():
        yield notebook_bars
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    errors = console or Console(stderr=True, highlight=False)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=errors, disable=not errors.is_terminal, transient=True) as bars:
        finished: list[str] = []

        def flush() -> None:
            while finished:
                errors.print(finished.pop(0), markup=False, highlight=False)

        def show(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
            flush()
            task = bars.add_task(escape(label), total=total)
            start, done = time.perf_counter(), 0
            last = start
            try:
                for step in steps:
                    # Counted when yielded: a caller that knows the number of steps never asks for one more.
                    bars.advance(task)
                    done += 1
                    if not errors.is_terminal and time.perf_counter() - last > _INTERVAL:
                        last = time.perf_counter()
                        errors.print(f"{label}: {done}/{total} after {last - start:.0f} s", markup=False)
                    yield step
            finally:  # also if the caller stops early; printing here could swallow a Ctrl-C
                bars.remove_task(task)
                if done == total > 0:
                    finished.append(f"{label}: {done}/{total} in {time.perf_counter() - start:.1f} s")
            flush()

        try:
            yield show
        finally:
            flush()
