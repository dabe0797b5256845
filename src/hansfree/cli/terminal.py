"""The terminal: where words go, how progress looks, and the table that ends a run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.results import Row

_NUMBER = 10  # columns of the longest score, 100.0±10.0

# What is printed holds the user's own names and paths: "nevus [benign]" is no markup, ":x:" no emoji.
console = Console(markup=False, emoji=False)
errors = Console(stderr=True, markup=False, emoji=False)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show a bar on the error stream for everything under way inside the block, and a line for all that is done.

    A bar that is done makes room: a terminal shows no more bars than it has lines, and cuts off the newest. Where the
    error stream is no terminal, the lines alone are the log.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=errors, disable=not errors.is_terminal, transient=True) as bars:
        finished: list[str] = []

        def tell() -> None:
            while finished:
                errors.print(finished.pop(0), markup=False, highlight=False)

        def show(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
            tell()
            task = bars.add_task(escape(label), total=total)
            start, done = time.perf_counter(), 0
            try:
                for step in steps:
                    # Counted when handed out: who knows the number of steps never asks for one more after the last.
                    bars.advance(task)
                    done += 1
                    yield step
            finally:  # also where the steps are dropped, for the reason above: a Ctrl-C while printing would be lost
                bars.remove_task(task)
                if done == total > 0:
                    finished.append(f"{label}: {done}/{total} in {time.perf_counter() - start:.1f} s")
            tell()

        try:
            yield show
        finally:
            tell()


def show_methods(rows: list[Row]) -> None:
    """Print the final scores of all methods."""
    from rich.table import Table

    from hansfree.metrics import Metric

    shown = ("accuracy_clean", "accuracy_biased", "flip_rate", "tcav", "artifact_relevance")
    tried = [row for row in rows if row.split == "test" and row.epoch is None and row.chosen is not None]
    final: dict[tuple[str, str], Row] = {}
    for row in tried:
        if row.chosen == 1:
            final.setdefault((row.method, row.metric), row)  # of the run's own seed, as the sentences; repeats follow
    # Close together: it has to fit into the 80 columns of a small terminal.
    table = Table(title="test images, in % ± standard error", box=None, pad_edge=False)
    # A run leaves balanced accuracy out where images with the artifact are of too few classes to know it.
    known = {row.metric for row in tried}
    untelling = {"accuracy_biased"} & known if "balanced_accuracy_biased" not in known else set()
    # A long name may fold, and no number may lose a digit.
    table.add_column("method", overflow="fold")
    table.add_column("strength", no_wrap=True)
    for metric in shown:
        label, is_muted = Metric.named(metric).label, metric in untelling
        head = "\n".join(wrap(f"{label} †" if is_muted else label, _NUMBER))
        table.add_column(head, justify="right", style="dim" if is_muted else None, no_wrap=True)
    for method in dict.fromkeys(row.method for row in tried):
        found = [final.get((method, metric)) for metric in shown]
        cells = ["-" if row is None else f"{100 * row.value:.1f}±{100 * (row.stderr or 0):.1f}" for row in found]
        table.add_row(method, _strength(found), *cells)
    console.print(table)
    if untelling:
        console.print(
            "† too few of these images are of other classes, where the shortcut is wrong: do not compare models by it.",
            highlight=False,
        )


def _strength(found: list[Row | None]) -> str:
    """Return the chosen strength in words; a method of which no strength was fit to be taken has no scores."""
    chosen = next((row for row in found if row is not None), None)
    if chosen is None:
        return "none"
    return "" if chosen.strength is None else f"{chosen.strength:g}"
