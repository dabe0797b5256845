"""The terminal: where words go, how progress looks, and the table that ends a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from hansfree.progress import Progress
    from hansfree.results import Row

console = Console()
errors = Console(stderr=True)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show a bar on the error stream for everything that reports its progress inside the block."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=errors) as bars:

        def show(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
            task = bars.add_task(label, total=total)
            for step in steps:
                # Counted when handed out: whoever knows the number of steps never asks for one more after the last.
                bars.advance(task)
                yield step

        yield show


def show_methods(rows: list[Row]) -> None:
    """Print the final scores of all methods."""
    from rich.table import Table

    from hansfree.metrics import Metric

    shown = ("accuracy_clean", "accuracy_biased", "flip_rate", "tcav", "artifact_relevance")
    tried = [row for row in rows if row.split == "test" and row.epoch is None and row.chosen is not None]
    final = {(row.method, row.metric): row for row in tried if row.chosen == 1}
    # Close together: it has to fit into the 80 columns of a small terminal.
    table = Table(title="test images, in % ± standard error", box=None, pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("strength")
    for metric in shown:
        table.add_column(Metric.named(metric).label, justify="right")
    for method in dict.fromkeys(row.method for row in tried):
        found = [final.get((method, metric)) for metric in shown]
        cells = ["-" if row is None else f"{100 * row.value:.1f}±{100 * (row.stderr or 0):.1f}" for row in found]
        table.add_row(method, _strength(found), *cells)
    console.print(table)


def _strength(found: list[Row | None]) -> str:
    """Return the chosen strength in words; a method of which no strength was fit to be taken has no scores."""
    chosen = next((row for row in found if row is not None), None)
    if chosen is None:
        return "none"
    return "" if chosen.strength is None else f"{chosen.strength:g}"
