"""``python -m benchmarks.speed``: measure speed as ratios; a stopped run resumes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks import run_app
from benchmarks.speed import TRIAL, Benchmark, Record, Sizes, draw_ratios, run_benchmarks
from hansfree._internal.files import format_bytes
from hansfree.cli.terminal import console, progress_bars

app = typer.Typer(add_completion=False)


@app.command()
def speed(
    benchmark: Annotated[
        list[str] | None,
        typer.Option(help=f"Once per benchmark: {', '.join(Benchmark.members())}. [default: all]"),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Once per model. [default: resnet18, efficientnet_b0 and vgg16]")
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="Training images; four batches or a multiple. [default: 256]")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images in a batch, on all sides. [default: 64]")] = None,
    size: Annotated[int | None, typer.Option(min=32, help="Image size in pixels. [default: 224]")] = None,
    turns: Annotated[int | None, typer.Option(help="How often each side runs; the median counts. [default: 3]")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only check that everything works, with the demo network.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure again what the file already holds.")] = False,
    out: Annotated[Path, typer.Option(help="File for the numbers; the plot gets the same name.")] = Path("speed.json"),
) -> None:
    """Measure speed against the paper's procedure, one forward pass and plain libraries; a stopped run resumes."""
    given: dict[str, Any] = {"images": images, "batch": batch, "size": size, "turns": turns}
    if model:
        given["models"] = tuple(model)
    sizes = replace(TRIAL if quick else Sizes(), **{name: value for name, value in given.items() if value is not None})
    record = Record(out, sizes, sys.argv, again=again)
    with progress_bars() as progress:
        run_benchmarks(record, sizes, benchmark or (), again=again, progress=progress)
    _show(record, is_trial=quick)
    plot = out.with_suffix(".png")
    draw_ratios(plot, record.measures)
    console.print(f"numbers: {out}\nplot: {plot}", soft_wrap=True)


def _show(record: Record, *, is_trial: bool) -> None:
    title = "trial: too small to measure speed" if is_trial else "median, lowest and highest of all turns"
    table = Table(title=title, box=None, pad_edge=False)
    table.add_column("measure", overflow="fold")
    for column in ("median", "lowest", "highest"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for measure in record.measures:
        values = (measure.value, measure.low, measure.high)
        cells = [format_bytes(value) if measure.unit == "bytes" else f"{value:.3g}" for value in values]
        verdict = measure.target.verdict(measure.value) if measure.target and not is_trial else ""
        table.add_row(measure.name, *cells, verdict)
    console.print(table)
    for note in record.notes:
        console.print(note, soft_wrap=True, highlight=False)


if __name__ == "__main__":
    run_app(app, "speed")
