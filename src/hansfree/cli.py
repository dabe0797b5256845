"""The command line: it translates words into calls, shows progress, and turns errors into sentences.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from hansfree.bench import Ratio
    from hansfree.progress import Progress
    from hansfree.results import Row

app = typer.Typer(
    help="Find the shortcut that a trained vision model relies on, unlearn it, and prove how much is gone.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


@app.command()
def demo(
    artifact: Annotated[str, typer.Option(help="timestamp, brightness, lsb or plaster.")] = "timestamp",
    model: Annotated[str, typer.Option(help="demo, resnet18, vgg16 or efficientnet_b0.")] = "demo",
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
    with _progress_bars() as progress:
        rows, report = plan.run(folder, command=f"hansfree {shlex.join(sys.argv[1:])}", progress=progress)
    _show_methods(rows)
    console.print(f"report: {report}", soft_wrap=True)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Folder of a finished run.")]) -> None:
    """Write the report of a finished run anew."""
    from hansfree.report import write_report

    console.print(f"report: {write_report(run)}", soft_wrap=True)


@app.command()
def layers(
    model: Annotated[str, typer.Argument(help="demo, resnet18, vgg16 or efficientnet_b0.")],
    size: Annotated[int, typer.Option(min=32, help="Image size in pixels, for the shapes.")] = 224,
) -> None:
    """List the layers of a model: names, output shapes, and which can be used."""
    import torch
    from rich.table import Table

    from hansfree.models import ARCHITECTURES, build_model
    from hansfree.splitting.layers import list_layers

    table = Table(box=None, pad_edge=False)
    table.add_column("layer", no_wrap=True)  # it is there to be copied
    for column in ("kind", "output", "parameters after", "usable"):
        table.add_column(column)
    for layer in list_layers(build_model(model, classes=1000).eval(), torch.zeros(1, 3, size, size)):
        shape = "" if layer.shape is None else " x ".join(map(str, layer.shape))
        usable = "yes" if layer.usable else f"no: {layer.calls} calls" if layer.calls > 1 else "no"
        usable = "default" if layer.name == ARCHITECTURES[model].layer else usable
        table.add_row(layer.name, layer.kind, shape, f"{layer.parameters_after:,}", usable)
    console.print(table)


@app.command()
def bench(
    model: Annotated[
        list[str] | None, typer.Option(help="Once per model. [default: resnet18, efficientnet_b0 and vgg16]")
    ] = None,
    images: Annotated[int, typer.Option(help="Training images; a multiple of the batch.")] = 256,
    batch: Annotated[int, typer.Option(help="Images in a batch, on all sides.")] = 64,
    size: Annotated[int, typer.Option(min=32, help="Image size in pixels.")] = 224,
    repeats: Annotated[int, typer.Option(help="Turns; the median of their ratios counts.")] = 3,
    out: Annotated[Path, typer.Option(help="File for the ratios.")] = Path("bench.json"),
) -> None:
    """Measure how fast: our path against one forward pass and against the paper's own procedure."""
    from hansfree.bench import Bench, write_ratios

    models = tuple(model) if model else Bench.models
    plan = Bench(models=models, images=images, batch=batch, size=size, repeats=repeats)
    with _progress_bars() as progress:
        ratios, about = plan.run(progress=progress)
    write_ratios(out, ratios, about)
    _show_ratios(ratios, about)
    console.print(f"ratios: {out}", soft_wrap=True)


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


@contextmanager
def _progress_bars() -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=errors) as bars:

        def show(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
            task = bars.add_task(label, total=total)
            for step in steps:
                # Counted when handed out: whoever knows the number of steps never asks for one more after the last.
                bars.advance(task)
                yield step

        yield show


def _show_methods(rows: list[Row]) -> None:
    from rich.table import Table

    from hansfree.metrics import Metric

    shown = ("accuracy_clean", "accuracy_biased", "flip_rate", "tcav", "artifact_relevance")
    tried = [row for row in rows if row.split == "test" and row.epoch is None and row.chosen is not None]
    final = {(row.method, row.metric): row for row in tried if row.chosen == 1}
    # Close together: it has to fit into the 80 columns of a small terminal.
    table = Table(title="test images, in % ± standard error", box=None, pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("strength")
    for metric in shown:
        table.add_column(Metric.named(metric).label, justify="right")
    for method in dict.fromkeys(row.method for row in tried):
        found = [final.get((method, metric)) for metric in shown]
        cells = ["-" if row is None else f"{100 * row.value:.1f}±{100 * (row.stderr or 0):.1f}" for row in found]
        table.add_row(method, _strength(found), *cells)
    console.print(table)


def _strength(found: list[Row | None]) -> str:
    """Return the chosen strength in words; a method of which no strength was fit to be taken has no scores."""
    chosen = next((row for row in found if row is not None), None)
    if chosen is None:
        return "none"
    return "" if chosen.strength is None else f"{chosen.strength:g}"


def _show_ratios(ratios: list[Ratio], about: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"ratios of times: median of {about['repeats']} turns", box=None, pad_edge=False)
    table.add_column("model", no_wrap=True)
    for column in ("ratio", "median", "lowest", "highest"):
        table.add_column(column, justify="left" if column == "ratio" else "right")
    for ratio in ratios:
        name, _, kind = ratio.name.partition(".")
        table.add_row(name, kind, *(f"{value:.3g}" for value in (ratio.value, ratio.low, ratio.high)))
    console.print(table)
    for name, facts in about["models"].items():
        ours = (
            "ours was run in full"
            if facts["our_strengths_timed"] == facts["strengths"]
            else f"ours is multiplied up from {facts['our_epochs_timed']} epochs of one strength per turn"
        )
        console.print(
            f"{name}: {facts['strengths']} strengths x {facts['epochs']} epochs on {facts['images']} images; {ours}; "
            f"the paper's {facts['paper_steps']} steps are multiplied up from {facts['paper_steps_timed']}.",
            soft_wrap=True,
            highlight=False,
        )
