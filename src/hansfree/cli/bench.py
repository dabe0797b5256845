"""``hansfree bench``: how fast, as ratios."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console, progress_bars

if TYPE_CHECKING:
    from hansfree.bench import Ratio


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
    with progress_bars() as progress:
        ratios, about = plan.run(progress=progress)
    write_ratios(out, ratios, about)
    _show_ratios(ratios, about)
    console.print(f"ratios: {out}", soft_wrap=True)


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
