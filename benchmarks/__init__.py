"""Benchmarks outside the package: speed, the comparison of methods, single ideas, and whole networks."""

from __future__ import annotations

import sys

import typer

from hansfree.cli.terminal import print_failure
from hansfree.errors import HansfreeError


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line; print an error of hansfree as a sentence."""
    try:
        app(prog_name=f"python -m benchmarks.{name}")
    except HansfreeError as error:
        print_failure(str(error))
        sys.exit(1)
