"""The command line: it translates words into calls, shows progress, and turns errors into sentences.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import logging
import os
import sys

from hansfree.cli import bench, demo, export, layers, reproduce, run, train  # they join the app
from hansfree.cli.app import app
from hansfree.cli.terminal import errors

__all__ = ["app", "bench", "demo", "export", "layers", "main", "reproduce", "run", "train"]


def main() -> None:
    """Run the command line: a sentence and exit code 1 for what hansfree refuses, 130 for Ctrl-C."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    # Threads that wait by spinning make a small network several times slower as soon as another program wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from hansfree.errors import HansfreeError

    try:
        app()
    except HansfreeError as error:
        errors.print(f"Error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of Ctrl-C, without a word
            errors.print("Stopped. The same command goes on from here.")
        raise
