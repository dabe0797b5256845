"""The typer app, the consoles, progress bars, tables, and errors as exit codes."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from rich.table import Table

    from hansfree._internal.progress import Progress
    from hansfree.evaluation.results import Row

app = typer.Typer(
    help="Find the shortcut that a trained vision model relies on, unlearn it, and prove how much is gone.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# Output contains names and paths of users: "nevus [benign]" is not markup, ":x:" no emoji, and paths are not wrapped.
console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
errors = Console(markup=False, emoji=False, highlight=False, soft_wrap=True, stderr=True)

# Listed here because the packages that register them import torch, which takes seconds. A test compares them with the
# registered names.
MODELS = ("demo", "vgg16", "resnet18", "efficientnet_b0", "vgg16_pooled", "efficientnet_lite0")
ARTIFACTS = ("timestamp", "brightness", "lsb", "plaster")  # of the demo: they need no file
INSERTABLE = ("timestamp", "brightness", "lsb", "patch")  # into images of users

_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
_NUMBER = 10  # columns of the longest score, 100.0±10.0


def failure_of(error: Exception) -> tuple[str, int]:
    """Return message and exit code for an error; of an internal error the traceback is written to a log file."""
    from hansfree.activations.loading import WORKER_DIED, is_worker_death
    from hansfree.errors import HansfreeError

    if isinstance(error, HansfreeError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename else ""
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = " Free some space, then run the same command again to resume." if is_full else ""
        return f"{error.strerror or error}{where}.{advice}", 1
    if _is_out_of_memory(error):
        return "Out of memory. Reduce `batch_size` or the image size.", 1
    if is_worker_death(error):
        return WORKER_DIED, 1
    first_line = (str(error).strip().splitlines() or [""])[0]
    kind, log = type(error).__name__, write_traceback(error)
    return f"Internal error ({kind}: {first_line}). Please report it with the log {log}.", _INTERNAL


def print_failure(message: str) -> None:
    """Print an error message."""
    errors.print(f"Error: {message}", style="red")


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out; Python and the allocators of CPU and GPU raise different errors."""
    kinds = [kind.__name__ for kind in type(error).__mro__]  # by name: torch may not be imported yet
    return "MemoryError" in kinds or "OutOfMemoryError" in kinds or "can't allocate memory" in str(error)


def write_traceback(error: BaseException) -> Path:
    """Write the traceback to a file in the working directory, or else in the temporary directory."""
    name = f"hansfree-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    text = f"{' '.join(sys.argv)}\nPython {sys.version}\n\n" + "".join(traceback.format_exception(error))
    path = Path(name)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError:
        path = Path(tempfile.gettempdir()) / name
        path.write_text(text, encoding="utf-8")
    return path.absolute()


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show a bar on stderr for everything in progress inside the block, and a line for everything that is finished.

    Finished bars are removed: a terminal shows no more bars than it has lines, and cuts off the newest. If stderr is
    not a terminal, only the lines are written.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

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
            try:
                for step in steps:
                    # Counted when yielded: a caller that knows the number of steps never asks for one more.
                    bars.advance(task)
                    done += 1
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


def new_table(*, left: Iterable[str] = (), right: Iterable[str] = (), title: str | None = None) -> Table:
    """Return a table without a box; the columns ``left`` may wrap."""
    from rich.table import Table

    table = Table(title=title, box=None, pad_edge=False)
    for head in left:
        table.add_column(head, overflow="fold")
    for head in right:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def show_table(table: Table) -> None:
    """Print a table, wrapped to the width of the terminal."""
    console.print(table, soft_wrap=False)


def show_methods(rows: list[Row]) -> None:
    """Print the test scores of all methods."""
    from hansfree.evaluation.results import tested_rows
    from hansfree.metrics import Metric

    tried = [row for row in tested_rows(rows) if row.chosen is not None]
    final: dict[tuple[str, str], Row] = {}
    for row in tried:
        if row.chosen == 1:
            final.setdefault((row.method, row.metric), row)  # of the run's own seed; repeats follow
    # Balanced accuracy is n/a where images with the artifact are of too few classes.
    known = {row.metric for row in tried}
    uninformative = {"accuracy_biased"} & known if "balanced_accuracy_biased" not in known else set()
    shown = ("accuracy_clean", "accuracy_biased", "flip_rate", "tcav", "artifact_relevance")
    # Narrow, to fit into 80 columns: long names of methods may fold; numbers may not lose a digit.
    labels = [f"{Metric.named(name).label} †" if name in uninformative else Metric.named(name).label for name in shown]
    heads = ["\n".join(wrap(label, _NUMBER)) for label in labels]
    table = new_table(left=["method"], right=["strength", *heads], title="test images, in % ± standard error")
    table.columns[1].justify = "left"
    for method in dict.fromkeys(row.method for row in tried):
        found = [final.get((method, metric)) for metric in shown]
        cells = ["-" if row is None else f"{100 * row.value:.1f}±{100 * (row.stderr or 0):.1f}" for row in found]
        chosen = next((row for row in found if row is not None), None)
        strength = "none"  # no strength was admissible
        if chosen is not None:
            strength = "" if chosen.strength is None else f"{chosen.strength:g}"
        table.add_row(method, strength, *cells)
    show_table(table)
    if uninformative:
        console.print(
            "† too few of these images are of other classes, where the shortcut is wrong: do not compare models by it.",
            soft_wrap=False,
        )
