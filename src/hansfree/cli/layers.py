"""``hansfree layers``: what a model consists of."""

from __future__ import annotations

from typing import Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console


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
