"""The command line: parse, call, print.

Commands import heavy packages when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from hansfree.cli import discover, init, layers, run  # they register their commands
from hansfree.cli.terminal import app, console, errors, failure_of, print_failure

if find_spec("hansfree_paper_cli"):  # in a clone: `train` and `reproduce`
    import hansfree_paper_cli


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        console.print(f"hansfree {version('hansfree')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors become a message and an exit code.

    Exit codes: 1 for invalid input and system errors, 70 for internal errors, whose traceback is written to a log file,
    130 for Ctrl-C. ``HANSFREE_DEBUG=1`` shows tracebacks instead.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    # Threads that wait by spinning slow a small network down several times when another program needs a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except SystemExit as end:
        if end.code == 130:  # typer exits silently on Ctrl-C
            errors.print("Stopped. Run the same command again to resume.")
        raise
    except Exception as error:
        if os.environ.get("HANSFREE_DEBUG") == "1":
            raise
        message, code = failure_of(error)
        print_failure(message)
        sys.exit(code)
