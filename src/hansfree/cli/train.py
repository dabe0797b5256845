"""``hansfree train``: a model that has learned the shortcut."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.studies import (
    BiasedClass,
    Data,
    Device,
    Root,
    Seed,
    Share,
    SkipBad,
    TrainedPart,
    Workers,
    first_weights,
    open_study,
)
from hansfree.cli.terminal import console, progress_bars


@app.command()
def train(
    data: Data = None,
    root: Root = None,
    artifact: Annotated[str | None, typer.Option(help="[default: the dataset's own]")] = None,
    model: Annotated[str, typer.Option(help="demo, resnet18, vgg16 or efficientnet_b0.")] = "resnet18",
    weights: Annotated[
        str | None,
        typer.Option(
            help="What training starts from: pretrained (torchvision's), random, or a .safetensors, .pt or .pth file. "
            "[default: pretrained for the paper's datasets, random for embedded ones]"
        ),
    ] = None,
    trained: TrainedPart = "whole",
    epochs: Annotated[int | None, typer.Option(min=1, help="[default: the dataset's recipe]")] = None,
    size: Annotated[int | None, typer.Option(min=32, help="Image size in pixels. [default: the dataset's]")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    workers: Workers = 0,
    skip_bad: SkipBad = False,
    biased_class: BiasedClass = None,
    share: Share = None,
    work: Annotated[
        Path, typer.Option(help="Folder for models and caches, where `reproduce` looks for them too.")
    ] = Path("results/work"),
) -> None:
    """Train a model on the poisoned images of a dataset, by the paper's recipe; stops and resumes."""
    from hansfree.experiments.base_models import BaseModels
    from hansfree.experiments.plans import Plan
    from hansfree.experiments.subjects import keep_in_memory

    plan = Plan(
        model=model,
        weights=first_weights(data, weights),
        trained=trained,  # type: ignore[arg-type]
        epochs=epochs,
        seed=seed,
        device=device,
        workers=workers,
    )
    with progress_bars() as progress:
        study = open_study(
            data,
            root,
            artifact=artifact,
            size=size,
            seed=seed,
            skip_bad=skip_bad,
            biased_class=biased_class,
            share=share,
            progress=progress,
        )
        images = keep_in_memory(study.data(model), progress=progress).learned
        models = BaseModels(study=study, plan=plan, work=work, progress=progress)
        _, path = models.trained(images, "biased model")
    for sentence in (*study.remarks, *study.skipped):
        console.print(sentence, soft_wrap=True, highlight=False)
    console.print(f"model: {path}", soft_wrap=True)
