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
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

app = typer.Typer(
    help="Find the shortcut that a trained vision model relies on, unlearn it, and prove how much is gone.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


_FAULT = 70  # EX_SOFTWARE of sysexits.h
_RESUME = "run the same command again to resume"


class Failure(NamedTuple):
    """A sentence for the user, and the exit code."""

    sentence: str
    code: int


def failure_of(error: Exception) -> Failure:
    """Return the message for an error; of an internal error the traceback is written to a log file."""
    from hansfree.activations.loading import WORKER_DIED, is_worker_death
    from hansfree.errors import HansfreeError

    if isinstance(error, HansfreeError):
        return Failure(str(error), error.exit_code)
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(_system(error), 1)
    if is_memory(error):
        return Failure("Out of memory. Reduce `batch_size` or the image size.", 1)
    if is_worker_death(error):
        return Failure(WORKER_DIED, 1)
    message = (str(error).strip().splitlines() or [""])[0]
    return Failure(
        f"Internal error ({type(error).__name__}: {message}). Please report it with the log {write_traceback(error)}.",
        _FAULT,
    )


def is_memory(error: Exception) -> bool:
    """Return whether memory ran out; Python and the allocators of CPU and GPU raise different errors."""
    kinds = [kind.__name__ for kind in type(error).__mro__]  # by name: torch may not be imported yet
    return "MemoryError" in kinds or "OutOfMemoryError" in kinds or "can't allocate memory" in str(error)


def _system(error: OSError) -> str:
    reason = error.strerror or str(error)
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{reason}{where}. Free some space, then {_RESUME}."
    return f"{reason}{where}."


def write_traceback(error: BaseException) -> Path:
    """Write the traceback to a file in the working directory, or else in the temporary directory."""
    name = f"hansfree-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    command = " ".join(sys.argv)
    text = f"{command}\nPython {sys.version}\n\n" + "".join(traceback.format_exception(error))
    here, elsewhere = Path(name), Path(tempfile.gettempdir()) / name
    try:
        here.write_text(text, encoding="utf-8")
    except OSError:
        elsewhere.write_text(text, encoding="utf-8")
        return elsewhere
    return here.absolute()


# Listed here because the packages that register them import torch, which takes seconds. A test compares them with the
# registered names.
MODELS = ("demo", "vgg16", "resnet18", "efficientnet_b0", "vgg16_pooled", "efficientnet_lite0")
TRAINED = ("whole", "head")
ARTIFACTS = ("timestamp", "brightness", "lsb", "plaster")  # of the demo: they need no file
INSERTABLE = ("timestamp", "brightness", "lsb", "patch")  # into images of users


class Listing(TyperCommand):
    """A command whose help lists registered names."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the names filled in."""
        for option in self.params:
            option.help = fill_in(option.help or "")  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def fill_in(text: str) -> str:
    """Return a text with its placeholders replaced by names."""
    lists = {"{artifacts}": ARTIFACTS, "{insertable}": INSERTABLE, "{models}": MODELS, "{trained}": TRAINED}
    for word, names in lists.items():
        text = text.replace(word, ", ".join(names))
    return text


if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.evaluation.results import Row

_NUMBER = 10  # columns of the longest score, 100.0±10.0

# Output contains names and paths of users: "nevus [benign]" is not markup, ":x:" not an emoji.
console = Console(markup=False, emoji=False)
errors = Console(stderr=True, markup=False, emoji=False)


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


def show_methods(rows: list[Row]) -> None:
    """Print the test scores of all methods."""
    from rich.table import Table

    from hansfree.evaluation.results import tested_rows
    from hansfree.metrics import Metric

    shown = ("accuracy_clean", "accuracy_biased", "flip_rate", "tcav", "artifact_relevance")
    tried = [row for row in tested_rows(rows) if row.chosen is not None]
    final: dict[tuple[str, str], Row] = {}
    for row in tried:
        if row.chosen == 1:
            final.setdefault((row.method, row.metric), row)  # of the run's own seed; repeats follow
    # Narrow: it has to fit into 80 columns.
    table = Table(title="test images, in % ± standard error", box=None, pad_edge=False)
    # Balanced accuracy is n/a where images with the artifact are of too few classes.
    known = {row.metric for row in tried}
    uninformative = {"accuracy_biased"} & known if "balanced_accuracy_biased" not in known else set()
    # Long names may fold; numbers may not lose a digit.
    table.add_column("method", overflow="fold")
    table.add_column("strength", no_wrap=True)
    for metric in shown:
        label, is_muted = Metric.named(metric).label, metric in uninformative
        head = "\n".join(wrap(f"{label} †" if is_muted else label, _NUMBER))
        table.add_column(head, justify="right", style="dim" if is_muted else None, no_wrap=True)
    for method in dict.fromkeys(row.method for row in tried):
        found = [final.get((method, metric)) for metric in shown]
        cells = ["-" if row is None else f"{100 * row.value:.1f}±{100 * (row.stderr or 0):.1f}" for row in found]
        table.add_row(method, _strength(found), *cells)
    console.print(table)
    if uninformative:
        console.print(
            "† too few of these images are of other classes, where the shortcut is wrong: do not compare models by it.",
            highlight=False,
        )


def _strength(found: list[Row | None]) -> str:
    """Return the chosen strength; a method without an admissible strength has no scores."""
    chosen = next((row for row in found if row is not None), None)
    if chosen is None:
        return "none"
    return "" if chosen.strength is None else f"{chosen.strength:g}"
