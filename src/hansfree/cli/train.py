"""``hansfree train``: a model that has learned the shortcut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.listing import Listing
from hansfree.cli.studies import (
    ARTIFACT,
    FIRST_WEIGHTS,
    MODEL,
    RESULTS,
    WEIGHTS,
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

if TYPE_CHECKING:
    from hansfree.studies import Study


@app.command(cls=Listing)
def train(
    data: Data = None,
    root: Root = None,
    artifact: Annotated[str | None, typer.Option(help=f"{ARTIFACT} [default: the first]")] = None,
    model: Annotated[str, typer.Option(help=f"{MODEL}.")] = "resnet18",
    weights: Annotated[str | None, typer.Option(help=f"{WEIGHTS}. {FIRST_WEIGHTS}")] = None,
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
    ] = RESULTS / "work",
) -> None:
    """Train a model on the poisoned images of a dataset, by the paper's recipe; stops and resumes."""
    from hansfree.errors import check_choice
    from hansfree.experiments.subjects import BaseModels, keep_in_memory
    from hansfree.experiments.workspace import Plan, Trained

    check_choice("--train", trained, Trained)  # by the option's own name; the plan calls it otherwise
    plan = Plan(
        model=model,
        weights=first_weights(data, model, weights),
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
    for sentence in study.remarks:
        console.print(sentence, soft_wrap=True, highlight=False)
    _record_skipped(study, path.with_suffix(".skipped.txt"))
    console.print(f"model: {path}", soft_wrap=True)


def _record_skipped(study: Study, path: Path) -> None:
    """Write what was left out beside the model that was trained without it; the record of an earlier run goes."""
    from hansfree._internal.files import write_text

    if not study.skipped:
        path.unlink(missing_ok=True)
        return
    write_text(path, "".join(f"{sentence}\n" for sentence in study.skipped))
    console.print(f"left out: {len(study.skipped)} files, listed in {path}", soft_wrap=True, highlight=False)
