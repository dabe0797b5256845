"""The typer app, the consoles, progress bars, tables, and errors as exit codes."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hansfree._internal import progress

if TYPE_CHECKING:
    from rich.table import Table

    from hansfree.report import Summary

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
ARTIFACTS = ("timestamp", "brightness", "lsb", "plaster")  # of the demo: they need no file
INSERTABLE = ("timestamp", "brightness", "lsb", "patch")  # into images of users

Engine = Annotated[str, typer.Option(help="Where tasks run: local, or ray (a cluster).")]
Address = Annotated[str | None, typer.Option(help="Of the Ray cluster: auto or HOST:PORT. [default: found by Ray]")]

_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
_NUMBER = 10  # columns of the head of a number


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


def progress_bars() -> AbstractContextManager[progress.Progress]:
    """Show progress on stderr inside the block."""
    return progress.progress_bars(errors)


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


_TONES = {"good": "green", "fair": "yellow", "poor": "red", "none": "bright_black"}
_TRENDS = {"better": "green", "worse": "red", "same": "", "unknown": ""}
_MOST_LINES = 8  # of the table of methods


def show_summary(summary: Summary) -> None:
    """Print the first screen of the report: the verdict, three numbers, and the methods."""
    from rich.text import Text

    from hansfree.report import write_number

    badge = summary.badge
    verdict = Text(f" {badge.icon} {badge.title} ", style=f"bold reverse {_TONES[badge.tone]}")
    console.print(verdict, ", ".join(filter(None, (summary.subject, summary.status))), soft_wrap=False)
    console.print()
    numbers = new_table(left=[""], right=["before", "after", "change"])
    for tile in summary.tiles:
        unit = f", {tile.unit}" if tile.before.is_known else ""
        change = Text(f"{tile.sign} {tile.change}".strip(), style=_TRENDS[tile.trend])
        numbers.add_row(f"{tile.title}{unit}", write_number(tile.before), write_number(tile.after), change)
    show_table(numbers)
    for tile in summary.tiles:
        if tile.is_stand_in:
            console.print(f"{tile.title}: {tile.how}", soft_wrap=False)
    console.print()
    methods = new_table(left=["method", "verdict"], right=["\n".join(wrap(head, _NUMBER)) for head in summary.heads])
    for line in summary.shortened(_MOST_LINES):
        found = line.badge
        verdict = Text(f"{found.icon} {found.title}", style=_TONES[found.tone]) if found else Text("reference")
        style = "bold" if line.is_shown else ""
        methods.add_row(line.title, verdict, *[number.value for number in line.numbers], style=style)
    show_table(methods)
    if (more := len(summary.lines) - _MOST_LINES) > 0:
        console.print(f"{more} more: see the report.")
