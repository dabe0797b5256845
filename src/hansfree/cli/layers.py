"""``hansfree layers``: what a model consists of, and where to correct it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hansfree.cli.terminal import app, console, progress_bars

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor, nn

    from hansfree.models.surgery import Layer
    from hansfree.pipeline.layer_search import LayerChoice, Trial

_SHOWN = 15  # of the last usable layers: what lies further from the classifier is rarely asked for
_REASON = 24  # columns that a reason needs, to be read and not spelled


@app.command()
def layers(
    model: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="package.module:function, path/to/file.py:function, torchvision:NAME, timm:NAME, hf:FOLDER, or a bare "
            "name such as resnet18; or a run file.",
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
    choose: Annotated[
        bool,
        typer.Option("--choose", help="SOURCE is a run file: score all layers on its images, and correct at the best."),
    ] = False,
    tries: Annotated[
        int | None, typer.Option(min=0, help="With --choose: at how many of the best layers. [default: 3]")
    ] = None,
) -> None:
    """List the layers of a model: names, output shapes, what they cost, and which one to take."""
    is_run_file = Path(model).suffix in (".yaml", ".yml")
    if choose or is_run_file:
        of_model = {"--weights": weights, "--classes": classes, "--size": size, "--channels": channels}
        _refuse(of_model, f"{'With --choose, the' if choose else 'The'} run file tells all about the model.")
    if choose:
        _refuse({"--all": every or None}, "With --choose, all layers are shown.")
        _choose(Path(model), 3 if tries is None else tries)
        return
    _refuse({"--tries": tries}, "Layers are tried with --choose and a run file only.")

    from hansfree.models.layers import recommend_layer
    from hansfree.models.surgery import list_layers

    adapted, example = _of_run_file(Path(model)) if is_run_file else _of_source(model, weights, classes, size, channels)
    recommended = recommend_layer(adapted, example)
    found = list_layers(adapted, example)
    shown = found if every else _last_usable(found, recommended.layer)

    console.print(_table(shown, recommended.layer))
    console.print("after: weights that follow the layer; cache: what one image takes on disk.", highlight=False)
    if len(shown) < len(found):
        console.print(f"Layers not shown: {len(found) - len(shown)} (--all shows them).", highlight=False)
    console.print(f"Recommended: {recommended.layer}. {recommended.reason}", highlight=False, markup=False)
    if is_run_file:
        to_choose = f"To have your images choose one: hansfree layers {shlex.quote(model)} --choose"
        console.print(to_choose, soft_wrap=True, highlight=False)


def _of_source(
    source: str, weights: str | None, classes: int | None, size: int | None, channels: int | None
) -> tuple[nn.Module, Tensor]:
    """Return a model, with one logit per class, and images that it takes."""
    from hansfree.models import adapt, find_logits, load_model, preprocessing_of

    loaded = load_model(source, weights=None if weights is None else Path(weights), classes=classes)
    known = preprocessing_of(source, loaded)
    example = _example(channels or _channels(loaded), size or (224 if known is None else known.size))
    is_binary = find_logits(loaded, example).shape[1:] in ((), (1,))
    return adapt(loaded, example, output="binary" if is_binary else "classes"), example


def _of_run_file(file: Path) -> tuple[nn.Module, Tensor]:
    """Return a run file's model and images that it takes; the layer that the file names is not asked for."""
    from hansfree.pipeline.checks import load_run_model
    from hansfree.pipeline.config import AUTO, read_run_file

    run = read_run_file(file)
    loaded = load_run_model(run.model_copy(update={"model": run.model.model_copy(update={"layer": AUTO})}))
    return loaded.model, _example(loaded.preprocessing.channels, loaded.preprocessing.size)


def _example(channels: int, size: int) -> Tensor:
    """Return random pixels: a model that divides a picture by its own spread cannot take one of a single colour.

    Two pictures, as the output for a single one may be squeezed.
    """
    import torch

    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(0))


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options that would change nothing."""
    for flag, given in options.items():
        if given is not None:
            raise typer.BadParameter(f"{why} Leave {flag} out.")


def _choose(file: Path, tries: int) -> None:
    """Print what speaks for every layer of a run file's model, and which one to take."""
    from hansfree.discovery.opening import choose_run_layer
    from hansfree.pipeline.checks import prepare_run
    from hansfree.pipeline.config import read_run_file

    with progress_bars() as progress:
        choice = choose_run_layer(prepare_run(read_run_file(file), progress=progress), tries=tries, progress=progress)
    console.print(_scores(choice))
    console.print(
        "AUC: of the artifact on held-out images; degrees: expected error of the direction; "
        "moves: log-odds by the artifact's shift, in their spread; class: cosine with the class's direction; biased: "
        "balanced accuracy on validation images with the artifact, before and after a correction there.",
        highlight=False,
    )
    for sentence in (*choice.remarks, *map(choice.explain, choice.trials), choice.reason):
        console.print(sentence, soft_wrap=True, highlight=False)
    console.print(f"To take it: write `layer: {choice.layer}` below `model:` in {file}.", soft_wrap=True)


def _scores(choice: LayerChoice) -> Table:
    """Return the scores of all layers as a table, the best first."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    table.add_column("level")
    for head in ("AUC", "degrees", "moves", "class", "after", "biased"):
        table.add_column(head, justify="right", no_wrap=True)
    for score in choice.scores:
        table.add_row(
            f"{score.layer} *" if score.layer == choice.layer else score.layer,
            score.level,
            f"{score.auc:.2f}",
            f"{score.error:.0f}",
            f"{score.reaction:.2f}",
            "-" if score.overlap is None else f"{score.overlap:.2f}",
            _rounded(score.parameters_after),
            _change(choice.trials.get(score.layer)),
        )
    return table


def _change(trial: Trial | None) -> str:
    """Return the accuracy with the artifact before and after a trial, where both are known."""
    if trial is None or trial.before is None or trial.biased is None:
        return "-"
    return f"{100 * trial.before.value:.1f} → {100 * trial.biased.value:.1f}"


def _table(shown: list[Layer], recommended: str) -> Table:
    """Return the layers as a table whose cells stay in one line; only reasons against a layer may take more."""
    from rich.table import Table

    from hansfree._internal.files import format_bytes

    columns = {
        "layer": [layer.name for layer in shown],
        "kind": [layer.kind for layer in shown],
        "output": ["" if layer.shape is None else "x".join(map(str, layer.shape)) for layer in shown],
        "after": [_rounded(layer.parameters_after) for layer in shown],
        "cache": [format_bytes(4 * math.prod(layer.shape or ())) if layer.usable else "" for layer in shown],
    }
    usable = [
        "recommended" if layer.name == recommended else "yes" if layer.usable else _why_not(layer) for layer in shown
    ]
    widths = {head: max(map(len, (head, *cells))) for head, cells in columns.items()}
    room = console.width - sum(width + 2 for width in widths.values())
    if room < min(_REASON, max(map(len, usable))):  # names are there to be copied; what they are, matters less
        del columns["kind"]
    table = Table(box=None, pad_edge=False)
    for head in columns:
        side: Literal["left", "right"] = "right" if head in ("after", "cache") else "left"
        table.add_column(head, no_wrap=True, min_width=widths[head], justify=side)
    table.add_column("usable")
    for row in zip(*columns.values(), usable):
        table.add_row(*row)
    return table


def _rounded(number: int) -> str:
    """Write a number of weights short enough for a column."""
    if number < 10_000:
        return f"{number}"
    return f"{number / 1e3:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"


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
