"""``hansfree layers``: the layers of a model, and where to correct it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hansfree.cli.terminal import app, console, new_table, progress_bars, show_table

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hansfree.models.surgery import Layer
    from hansfree.pipeline.layer_search import LayerChoice, Trial

_SHOWN = 15  # last usable layers


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
    weights: Annotated[Path | None, typer.Option(help="Weights file, which gives the number of classes.")] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, help="Number of classes. [default: the weights', or the model's]")
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
    """List the layers of a model: names, output shapes, sizes, and which one to use."""
    is_run_file = Path(model).suffix in (".yaml", ".yml")
    if choose or is_run_file:
        of_model = {"--weights": weights, "--classes": classes, "--size": size, "--channels": channels}
        _refuse(of_model, f"The run file describes the model{', with --choose too' if choose else ''}.")
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
    usable = [layer for layer in found if layer.usable]
    last = [layer for layer in usable if layer in usable[-_SHOWN:] or layer.name == recommended.layer]
    shown = found if every else last
    _show_layers(shown, recommended.layer)
    console.print("after: weights that follow the layer; cache: what one image takes on disk.")
    if len(shown) < len(found):
        console.print(f"Layers not shown: {len(found) - len(shown)} (--all shows them).")
    console.print(f"Recommended: {recommended.layer}. {recommended.reason}", soft_wrap=False)
    if is_run_file:
        console.print(f"To choose one with your images: hansfree layers {shlex.quote(model)} --choose")


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options that would change nothing."""
    for flag, given in options.items():
        if given is not None:
            raise typer.BadParameter(f"{why} Leave {flag} out.")


def _of_source(
    source: str, weights: Path | None, classes: int | None, size: int | None, channels: int | None
) -> tuple[nn.Module, Tensor]:
    """Return a model with one logit per class, and example images."""
    from torch.nn.modules.conv import _ConvNd

    from hansfree.models import adapt, find_logits, load_model, preprocessing_of

    loaded = load_model(source, weights=weights, classes=classes)
    known = preprocessing_of(source, loaded)
    first = next((int(module.in_channels) for module in loaded.modules() if isinstance(module, _ConvNd)), 3)
    example = _example(channels or first, size or (224 if known is None else known.size))
    is_binary = find_logits(loaded, example).shape[1:] in ((), (1,))
    return adapt(loaded, example, output="binary" if is_binary else "classes"), example


def _of_run_file(file: Path) -> tuple[nn.Module, Tensor]:
    """Return a run file's model and example images; its layer is not read."""
    from hansfree.pipeline.checks import load_run_model
    from hansfree.pipeline.config import AUTO, read_run_file

    run = read_run_file(file)
    loaded = load_run_model(run.model_copy(update={"model": run.model.model_copy(update={"layer": AUTO})}))
    return loaded.model, _example(loaded.preprocessing.channels, loaded.preprocessing.size)


def _example(channels: int, size: int) -> Tensor:
    """Return two images of noise: a model may divide an image by its standard deviation, or squeeze a batch of one."""
    import torch

    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(0))


def _show_layers(shown: list[Layer], recommended: str) -> None:
    """Print a table whose cells stay in one line; only reasons against a layer may take more."""
    from hansfree._internal.files import format_bytes

    table = new_table(left=["layer", "output"], right=["after", "cache"])
    for column in table.columns:
        column.no_wrap = True
    table.add_column("usable")
    for layer in shown:
        table.add_row(
            layer.name,
            "" if layer.shape is None else "x".join(map(str, layer.shape)),
            _rounded(layer.parameters_after),
            format_bytes(4 * math.prod(layer.shape or ())) if layer.usable else "",
            "recommended" if layer.name == recommended else "yes" if layer.usable else _why_not(layer),
        )
    show_table(table)


def _why_not(layer: Layer) -> str:
    if layer.reason:
        return f"no: {layer.reason.partition('. ')[0]}"  # what follows is advice
    if layer.calls > 1:
        return f"no: called {layer.calls} times"
    return "no: its output is not one tensor" if layer.shape is None else "no: no trainable parameter follows it"


def _rounded(number: int) -> str:
    """Return a number of weights, short enough for a column."""
    if number < 10_000:
        return f"{number}"
    return f"{number / 1e3:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"


def _choose(file: Path, tries: int) -> None:
    """Print the scores of every layer of a run file's model, and which one to use."""
    from hansfree.pipeline import choose_layer
    from hansfree.pipeline.checks import prepare_run
    from hansfree.pipeline.config import read_run_file

    with progress_bars() as progress:
        opened = prepare_run(read_run_file(file), progress=progress)
        setting = opened.setting
        choice = choose_layer(
            setting.model,
            setting.data,
            confirm=tries,
            tuning=setting.tuning,
            train=setting.train,
            budget=setting.rule.budget,
            class_budgets=setting.rule.class_budgets,
            seed=opened.run.seed,
            progress=progress,
        )
    _show_scores(choice)
    console.print(
        "AUC: of the artifact on held-out images; degrees: expected error of the direction; "
        "moves: log-odds by the artifact's shift, in their spread; class: cosine with the class's direction; biased: "
        "balanced accuracy on validation images with the artifact, before and after a correction there.",
        soft_wrap=False,
    )
    trials = (_describe_trial(layer, trial) for layer, trial in choice.trials.items())
    for sentence in (*choice.remarks, *trials, choice.reason):
        console.print(sentence)
    console.print(f"To use it: write `layer: {choice.layer}` below `model:` in {file}.")


def _describe_trial(layer: str, trial: Trial) -> str:
    """Return the trial at a layer in one sentence; the scores are a table."""
    if trial.strength is None:
        from hansfree.report import describe_reason

        return f"{layer}: {describe_reason(trial.reason)}."
    head = f"{layer}, strength {trial.strength:g}: balanced accuracy with the artifact"
    if trial.biased is None or trial.before is None:
        return f"{head} n/a."
    before, after = 100 * trial.before.value, 100 * trial.biased.value
    return f"{head} {before:.1f} → {after:.1f} % (± {100 * trial.biased.stderr:.1f})."


def _show_scores(choice: LayerChoice) -> None:
    """Print the scores of all layers, the best first."""
    table = new_table(left=["layer", "level"], right=["AUC", "degrees", "moves", "class", "after", "biased"])
    for score in choice.scores:
        trial = choice.trials.get(score.layer)
        change = "-"
        if trial is not None and trial.before is not None and trial.biased is not None:
            change = f"{100 * trial.before.value:.1f} → {100 * trial.biased.value:.1f}"
        table.add_row(
            f"{score.layer} *" if score.layer == choice.layer else score.layer,
            score.level,
            f"{score.auc:.2f}",
            f"{score.error:.0f}",
            f"{score.reaction:.2f}",
            "-" if score.overlap is None else f"{score.overlap:.2f}",
            _rounded(score.parameters_after),
            change,
        )
    show_table(table)
