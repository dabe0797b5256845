"""What ``hansfree train`` and ``hansfree reproduce`` share: the options that choose a dataset and its bias."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hansfree.cli.terminal import Listing, app, console, progress_bars

if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.paper.dataset import BenchmarkDataset

Data = Annotated[
    str | None,
    typer.Option(
        help="Which dataset; `hansfree reproduce` lists them. [default: the embedded suite, marked * in that list]"
    ),
]
Root = Annotated[Path | None, typer.Option(help="Folder of the dataset's files, in their official layout.")]
ARTIFACT = "Which artifact; `hansfree reproduce` lists those of each dataset."
MODEL = "One of {models}"
WEIGHTS = "What training starts from: pretrained (torchvision's), random, or a .safetensors, .pt or .pth file"
FIRST_WEIGHTS = "[default: pretrained for the paper's datasets, random for all others and for the model demo]"
TrainedPart = Annotated[str, typer.Option("--train", help="What is trained on the poisoned images: {trained}.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of data, training and correction.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that read images, for sets too large for memory.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, and record them.")]
BiasedClass = Annotated[
    str | None,
    typer.Option(help="Class that the artifact is put into, for your own images. [default: the first in the alphabet]"),
]
Share = Annotated[
    float | None, typer.Option(help="Part of that class that gets the artifact, for your own images. [default: 0.5]")
]

RESULTS = Path("hansfree-results")
"""Default folder of pages, models and caches."""

_RANDOM = "random"


def find_study(data: str | None) -> type[BenchmarkDataset]:
    """Return the dataset of that name, or the default."""
    from hansfree.paper.dataset import BenchmarkDataset

    return BenchmarkDataset.default() if data is None else BenchmarkDataset.named(data)


def first_weights(data: str | None, model: str, given: str | None) -> str | None:
    """Return what training starts from: what the user says, or what the paper does on its datasets.

    Weights that cannot be used are refused here, before all images of a dataset are read.
    """
    from hansfree.models import architecture_named, check_start
    from hansfree.models.weights import PRETRAINED, check_weights

    known = architecture_named(model)
    if given is None:
        return PRETRAINED if find_study(data).published is not None and known.has_pretrained else None
    if given == _RANDOM:
        return None
    check_weights(given, words=(PRETRAINED, _RANDOM))
    check_start(model, given)
    return given


def open_study(
    data: str | None,
    root: Path | None,
    *,
    artifact: str | None,
    size: int | None,
    seed: int,
    skip_bad: bool,
    biased_class: str | None,
    share: float | None,
    progress: Progress,
) -> BenchmarkDataset:
    """Return the dataset with all of its files checked."""
    from hansfree.errors import OptionError

    member = find_study(data)
    further = {"biased_class": biased_class, "share": share}
    given = {option: value for option, value in further.items() if value is not None}
    if unknown := [option for option in given if option not in member.options]:
        raise OptionError(f"{member.title} has its own bias: leave out --{unknown[0].replace('_', '-')}.")
    options = {"artifact": artifact, "size": size, "seed": seed, "skip_bad": skip_bad, **given}
    return member(root, progress=progress, **options)  # type: ignore[arg-type]


if TYPE_CHECKING:
    from hansfree.paper.dataset import BenchmarkDataset


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
    from hansfree.paper.subjects import BaseModels
    from hansfree.pipeline.workspace import (
        Plan,
        Trained,
        keep_in_memory,
    )

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


def _record_skipped(study: BenchmarkDataset, path: Path) -> None:
    """Write what was left out beside the model that was trained without it; the record of an earlier run goes."""
    from hansfree._internal.files import write_text

    if not study.skipped:
        path.unlink(missing_ok=True)
        return
    write_text(path, "".join(f"{sentence}\n" for sentence in study.skipped))
    console.print(f"left out: {len(study.skipped)} files, listed in {path}", soft_wrap=True, highlight=False)


_ALL = "all"


@app.command(cls=Listing)
def reproduce(
    context: typer.Context,
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
    repeats: Annotated[int, typer.Option(min=1, help="Seeds of the correction.")] = 1,
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
    from hansfree.models import PAPER_MODELS
    from hansfree.models.surgery import Train
    from hansfree.paper.runner import Reproduction
    from hansfree.paper.runner import reproduce as run
    from hansfree.pipeline.workspace import (
        Grid,
        Plan,
        Trained,
    )

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
        program = context.find_root().info_name
        command = f"{program} {shlex.join(sys.argv[1:])}"
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
    from hansfree.corrections import LatentCorrection
    from hansfree.errors import OptionError

    found = {}
    for word in given:
        method, _, values = word.partition("=")
        LatentCorrection.named(method)
        try:
            found[method] = tuple(float(value) for value in values.split(","))
        except ValueError:
            raise OptionError(f"--strengths is {word!r}; wanted is METHOD=0.1,1,10 with numbers.") from None
    return found


def _left_out(given: list[str], model: str) -> tuple[str, ...]:
    from hansfree.corrections import LatentCorrection
    from hansfree.models import architecture_named

    pairs = [word.rpartition(":") for word in given]
    for of, _, method in pairs:
        LatentCorrection.named(method)
        if of:
            architecture_named(of)
    return tuple(method for of, _, method in pairs if of in ("", model))


def _list_experiments() -> None:
    from rich.table import Table

    from hansfree.paper.dataset import BenchmarkDataset
    from hansfree.paper.runner import Reproduction

    experiments = Table(box=None, pad_edge=False)
    experiments.add_column("experiment", no_wrap=True)
    experiments.add_column("what it is")
    for name, experiment in Reproduction.members().items():
        experiments.add_row(name, experiment.title)
    datasets = Table(box=None, pad_edge=False)
    datasets.add_column("--data", no_wrap=True)
    for column in ("what it is", "--root", "--artifact"):
        datasets.add_column(column)
    for name, study in BenchmarkDataset.members().items():
        marked = f"{name} *" if study.is_default else name
        artifacts = ", ".join(filter(None, (*study.artifacts, study.further_artifacts)))
        datasets.add_row(marked, study.title, "needed" if study.needs_root else "none", artifacts)
    for listed in (experiments, datasets):
        console.print(listed)
        console.print()
    console.print("* is taken without --data, the first artifact without --artifact.", highlight=False)
