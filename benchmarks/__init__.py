"""Benchmarks outside the package: speed, the comparison of methods, single ideas, and whole networks."""

from __future__ import annotations

import sys

import typer

from hansfree.cli.terminal import errors, failure_of
from hansfree.errors import HansfreeError


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line; print an error of hansfree as a sentence."""
    try:
        app(prog_name=f"python -m benchmarks.{name}")
    except HansfreeError as error:
        errors.print(f"Error: {failure_of(error).sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
