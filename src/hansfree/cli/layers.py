"""``hansfree layers``: what a model consists of, and where to correct it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console

if TYPE_CHECKING:
    from torch import nn

    from hansfree.splitting import Layer

_SHOWN = 15  # of the last usable layers: what lies further from the classifier is rarely asked for


@app.command()
def layers(
    model: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="package.module:function, path/to/file.py:function, torchvision:NAME, timm:NAME, hf:FOLDER, or a bare "
            "name such as resnet18.",
        ),
    ],
    weights: Annotated[
        str | None, typer.Option(help="A file of weights: from it the number of classes is known.")
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(min=1, help="How many classes the model tells apart. [default: the weights', or its own]"),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=16, help="Image size in pixels. [default: the library's, or 224]")
    ] = None,
    channels: Annotated[int | None, typer.Option(min=1, help="Channels of an image. [default: the model's]")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every layer, and why some cannot be used.")] = False,
) -> None:
    """List the layers of a model: names, output shapes, what they cost, and which one to take."""
    import torch
    from rich.table import Table

    from hansfree.models import adapt, find_logits, load_model, preprocessing_of, recommend_layer
    from hansfree.splitting import list_layers

    loaded = load_model(model, weights=None if weights is None else Path(weights), classes=classes)
    told = preprocessing_of(model, loaded)
    size = size or (224 if told is None else told.size)
    channels = channels or _channels(loaded)
    # Random pixels: a model that divides a picture by its own spread cannot take one of a single colour.
    # Two, as the output for a single one may be squeezed.
    example = torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(0))
    is_binary = find_logits(loaded, example).shape[1:] in ((), (1,))
    adapted = adapt(loaded, example, output="binary" if is_binary else "classes")
    recommended = recommend_layer(adapted, example)
    found = list_layers(adapted, example)
    shown = found if every else _last_usable(found, recommended.layer)

    table = Table(box=None, pad_edge=False)
    table.add_column("layer", no_wrap=True)  # it is there to be copied
    table.add_column("kind")
    table.add_column("output")
    table.add_column("parameters after", justify="right")
    table.add_column("cache per image", justify="right")
    table.add_column("usable", overflow="fold")
    for layer in shown:
        shape = "" if layer.shape is None else " x ".join(map(str, layer.shape))
        usable = "recommended" if layer.name == recommended.layer else "yes" if layer.usable else _why_not(layer)
        cache = _bytes(layer) if layer.usable else ""
        table.add_row(layer.name, layer.kind, shape, f"{layer.parameters_after:,}", cache, usable)
    console.print(table)
    if len(shown) < len(found):
        console.print(f"Layers not shown: {len(found) - len(shown)} (--all shows them).", highlight=False)
    console.print(f"Recommended: {recommended.layer}. {recommended.reason}", highlight=False, markup=False)


def _channels(model: nn.Module) -> int:
    """Return what the first convolution takes."""
    from torch.nn.modules.conv import _ConvNd

    return next((int(module.in_channels) for module in model.modules() if isinstance(module, _ConvNd)), 3)


def _last_usable(found: list[Layer], recommended: str) -> list[Layer]:
    usable = [layer for layer in found if layer.usable]
    return [layer for layer in usable if layer in usable[-_SHOWN:] or layer.name == recommended]


def _why_not(layer: Layer) -> str:
    if layer.reason:
        return f"no: {layer.reason.partition('. ')[0]}"  # what follows is advice
    if layer.calls > 1:
        return f"no: called {layer.calls} times"
    return "no: its output is not one tensor" if layer.shape is None else "no: no trainable parameter follows it"


def _bytes(layer: Layer) -> str:
    """Return how much of a cache one image takes, in float32."""
    number = 4 * math.prod(layer.shape or ())
    if number < 1000:
        return f"{number} B"
    return f"{number / 1e3:.3g} KB" if number < 999_500 else f"{number / 1e6:.3g} MB"
