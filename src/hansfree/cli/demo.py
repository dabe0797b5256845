"""``hansfree demo`` and ``hansfree report``: the embedded default, and its report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.listing import Listing
from hansfree.cli.terminal import console, progress_bars, show_methods


@app.command(cls=Listing)
def demo(
    artifact: Annotated[str, typer.Option(help="One of {artifacts}.")] = "timestamp",
    model: Annotated[str, typer.Option(help="An architecture; a wrong name is answered with all.")] = "demo",
    size: Annotated[int, typer.Option(help="Image size in pixels.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of data, training and correction.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run; the same command resumes it. "
            "[default: hansfree-demo, followed by what differs from the plain demo]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images and epochs: a first look.")] = False,
) -> None:
    """Train a network on poisoned images, find the shortcut, unlearn it by five methods, and write a report."""
    from hansfree.demo import Demo

    options = {"artifact": artifact, "model": model, "size": size, "seed": seed}
    plan = Demo.quick(**options) if quick else Demo(**options)  # type: ignore[arg-type]
    changed = [f"{name}-{value}" for name, value in options.items() if value != getattr(Demo, name)]
    folder = out or Path("-".join(["hansfree-demo", *(["quick"] if quick else []), *changed]))
    with progress_bars() as progress:
        rows, verdict, report = plan.run(folder, command=f"hansfree {shlex.join(sys.argv[1:])}", progress=progress)
    show_methods(rows)
    for line in verdict:
        console.print(line, highlight=False)
    console.print(f"report: {report}", soft_wrap=True)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Folder of a finished run.")]) -> None:
    """Write the report of a finished run anew."""
    from hansfree.report import write_report

    console.print(f"report: {write_report(run)}", soft_wrap=True)
