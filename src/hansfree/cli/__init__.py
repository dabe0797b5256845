"""The command line: it translates words into calls, shows progress, and turns errors into sentences.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once, also where it lists
models or races (`hansfree.cli.listing`).
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from hansfree.cli import (  # they join the app
    demo,
    export,
    label,
    layers,
    monitor,
    reproduce,
    run,
    suspects,
    train,
)
from hansfree.cli.app import app
from hansfree.cli.failing import failure_of
from hansfree.cli.terminal import console, errors

__all__ = [
    "app",
    "demo",
    "export",
    "label",
    "layers",
    "main",
    "monitor",
    "reproduce",
    "run",
    "suspects",
    "train",
]


def _tell_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        console.print(f"hansfree {version('hansfree')}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: a sentence and an exit code for whatever goes wrong, 130 for Ctrl-C.

    Code 1 is for what hansfree refuses or the machine cannot do, 70 for a fault of hansfree itself, whose traceback is
    kept in a file. ``HANSFREE_DEBUG=1`` shows tracebacks instead.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    # Threads that wait by spinning make a small network several times slower as soon as another program wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except SystemExit as end:
        if end.code == 130:  # what typer makes of Ctrl-C, without a word
            errors.print("Stopped. The same command goes on from here.")
        raise
    except Exception as error:  # the last place where anything can be said
        if os.environ.get("HANSFREE_DEBUG") == "1":
            raise
        failure = failure_of(error)
        errors.print(f"Error: {failure.sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(failure.code)
