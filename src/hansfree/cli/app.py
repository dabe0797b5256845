"""The app that all commands join."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Find the shortcut that a trained vision model relies on, unlearn it, and prove how much is gone.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
