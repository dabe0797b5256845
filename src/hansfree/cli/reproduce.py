"""``hansfree reproduce``: the paper's experiments, on its datasets or on the embedded suite."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

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
    find_study,
    first_weights,
    open_study,
)
from hansfree.cli.terminal import console, progress_bars

_ALL = "all"


@app.command(cls=Listing)
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which experiment; without it, all are listed.")] = None,
    data: Data = None,
    root: Root = None,
    artifact: Annotated[
        list[str] | None, typer.Option(help=f"{ARTIFACT} Once per artifact, or all. [default: the first]")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"{MODEL}; once per model, or all for the paper's three. [default: resnet18]"),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(help=f"{WEIGHTS}; once, or once per model. {FIRST_WEIGHTS}"),
    ] = None,
    trained: TrainedPart = "whole",
    epochs: Annotated[
        list[int] | None, typer.Option(min=1, help="Of that training; once, or once per model. [default: the recipe]")
    ] = None,
    corrected: Annotated[str, typer.Option(help="What corrections fine-tune: all after the layer, or last.")] = "all",
    correction_epochs: Annotated[int, typer.Option(min=1, help="Epochs of every correction.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Seeds of the correction, or draws of a tournament.")] = 1,
    grid: Annotated[str, typer.Option(help="Strengths: own, or the paper's 22 in its units.")] = "own",
    strengths: Annotated[list[str] | None, typer.Option(help="METHOD=0.1,1,10 instead of the grid.")] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="METHOD, or MODEL:METHOD, that is not run.")] = None,
    size: Annotated[
        list[int] | None, typer.Option(min=32, help="In pixels; once, or once per model. [default: the dataset's]")
    ] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    workers: Workers = 0,
    skip_bad: SkipBad = False,
    biased_class: BiasedClass = None,
    share: Share = None,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = RESULTS,
    work: Annotated[Path | None, typer.Option(help="Folder for models, caches and runs. [default: OUT/work]")] = None,
) -> None:
    """Run one of the paper's experiments; stops and resumes."""
    from hansfree.errors import check_choice
    from hansfree.experiments.workspace import Grid, Plan, Trained
    from hansfree.models import PAPER_MODELS
    from hansfree.models.surgery import Train
    from hansfree.reproduce import Reproduction
    from hansfree.reproduce import reproduce as run

    if name is None:
        _list_experiments()
        return
    Reproduction.named(name)  # before anything starts
    # by the options' own names; the plan calls them otherwise
    check_choice("--train", trained, Trained)
    check_choice("--corrected", corrected, Train)
    check_choice("--grid", grid, Grid)
    models = list(PAPER_MODELS) if model == [_ALL] else model or ["resnet18"]
    artifacts: list[str | None] = [*artifact] if artifact else [None]
    if artifact == [_ALL]:
        artifacts = [*find_study(data).artifacts]
    plans = [
        Plan(
            model=each,
            weights=first_weights(data, each, file),
            trained=trained,  # type: ignore[arg-type]
            epochs=many,
            seed=seed,
            device=device,
            corrected=corrected,  # type: ignore[arg-type]
            correction_epochs=correction_epochs,
            repeats=repeats,
            grid=grid,  # type: ignore[arg-type]
            strengths=_strengths(strengths or []),
            left_out=_left_out(leave_out or [], each),
            workers=workers,
        )
        for each, file, many in zip(
            models, _per_model("weights", weights, models), _per_model("epochs", epochs, models)
        )
    ]
    with progress_bars() as progress:
        sizes = _per_model("size", size, models)
        studies = {
            pixels: open_study(
                data,
                root,
                artifact=artifacts[0],
                size=pixels,
                seed=seed,
                skip_bad=skip_bad,
                biased_class=biased_class,
                share=share,
                progress=progress,
            )
            for pixels in dict.fromkeys(sizes)
        }
        subjects = [
            (studies[pixels].with_artifact(one), plan) for plan, pixels in zip(plans, sizes) for one in artifacts
        ]
        command = f"hansfree {shlex.join(sys.argv[1:])}"
        page = run(name, subjects, out=out, work=work or out / "work", command=command, progress=progress)
    console.print(f"results: {page}", soft_wrap=True)


def _per_model(option: str, given: list[Any] | None, models: list[str]) -> list[Any]:
    """Return a value per model: one for all, or one each in the same order; None for all where none is given."""
    from hansfree.errors import OptionError

    if not given:
        return [None] * len(models)
    if len(given) not in (1, len(models)):
        raise OptionError(f"Give --{option} once, or once for each of {len(models)} models, not {len(given)} times.")
    return given if len(given) == len(models) else given * len(models)


def _strengths(given: list[str]) -> dict[str, tuple[float, ...]]:
    from hansfree.corrections import Correction
    from hansfree.errors import OptionError

    found = {}
    for word in given:
        method, _, values = word.partition("=")
        Correction.named(method)
        try:
            found[method] = tuple(float(value) for value in values.split(","))
        except ValueError:
            raise OptionError(f"--strengths is {word!r}; wanted is METHOD=0.1,1,10 with numbers.") from None
    return found


def _left_out(given: list[str], model: str) -> tuple[str, ...]:
    from hansfree.corrections import Correction
    from hansfree.models import architecture_named

    pairs = [word.rpartition(":") for word in given]
    for of, _, method in pairs:
        Correction.named(method)
        if of:
            architecture_named(of)
    return tuple(method for of, _, method in pairs if of in ("", model))


def _list_experiments() -> None:
    from rich.table import Table

    from hansfree.reproduce import Reproduction
    from hansfree.studies import Study

    experiments = Table(box=None, pad_edge=False)
    experiments.add_column("experiment", no_wrap=True)
    experiments.add_column("what it is")
    for name, experiment in Reproduction.members().items():
        experiments.add_row(name, experiment.title)
    datasets = Table(box=None, pad_edge=False)
    datasets.add_column("--data", no_wrap=True)
    for column in ("what it is", "--root", "--artifact"):
        datasets.add_column(column)
    for name, study in Study.members().items():
        marked = f"{name} *" if study.is_default else name
        artifacts = ", ".join(filter(None, (*study.artifacts, study.further_artifacts)))
        datasets.add_row(marked, study.title, "needed" if study.needs_root else "none", artifacts)
    for listed in (experiments, datasets):
        console.print(listed)
        console.print()
    console.print("* is taken without --data, the first artifact without --artifact.", highlight=False)
