"""``hansfree train`` and ``hansfree reproduce``: the paper's datasets and experiments."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hansfree.cli.terminal import Address, Engine, app, console, new_table, progress_bars, show_table

if TYPE_CHECKING:
    from hansfree_paper.dataset import BenchmarkDataset
    from hansfree_paper.subjects import Plan

Given = TypeVar("Given")

# Listed here because the package that registers them imports torch, which takes seconds; a test compares them.
MODELS = ("demo", "vgg16", "resnet18", "efficientnet_b0", "vgg16_pooled", "efficientnet_lite0")

_ALL = "all"
_RANDOM = "random"
_RESULTS = Path("hansfree-results")

_ARTIFACT = "Which artifact; `hansfree reproduce` lists those of each dataset."
_MODEL = f"One of {', '.join(MODELS)}"
_WEIGHTS = "What training starts from: pretrained (torchvision's), random, or a .safetensors, .pt or .pth file"
_DEFAULT_WEIGHTS = "[default: pretrained for the paper's datasets, random for all others and for the model demo]"

_DATA = "`hansfree reproduce` lists them. [default: the embedded suite, marked * in that list]"

# Options of both commands.
Root = Annotated[Path | None, typer.Option(help="Folder of the dataset's files, in their official layout.")]
TrainedPart = Annotated[str, typer.Option("--train", help="What is trained on the poisoned images: whole, head.")]
Momentum = Annotated[
    float | None,
    typer.Option(min=0, help="Of SGD, in training and correction. [default: 0.9 for the paper's datasets, else 0]"),
]
MixedPrecision = Annotated[
    bool, typer.Option("--mixed-precision", help="bfloat16 in the forward passes that train whole models.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of data, training and correction.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that read images, for sets too large for memory.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read, and record them.")]
BiasedClass = Annotated[
    str | None,
    typer.Option(
        help="Class that the artifact is inserted into, for your own images. [default: the first in the alphabet]"
    ),
]
Share = Annotated[
    float | None, typer.Option(help="Part of that class that gets the artifact, for your own images. [default: 0.5]")
]


@app.command()
def train(
    data: Annotated[str | None, typer.Option(help=f"Which dataset; {_DATA}")] = None,
    root: Root = None,
    artifact: Annotated[str | None, typer.Option(help=f"{_ARTIFACT} [default: the first]")] = None,
    model: Annotated[str, typer.Option(help=f"{_MODEL}.")] = "resnet18",
    weights: Annotated[str | None, typer.Option(help=f"{_WEIGHTS}. {_DEFAULT_WEIGHTS}")] = None,
    trained: TrainedPart = "whole",
    epochs: Annotated[int | None, typer.Option(min=1, help="[default: the dataset's recipe]")] = None,
    size: Annotated[int | None, typer.Option(min=32, help="Image size in pixels. [default: the dataset's]")] = None,
    momentum: Momentum = None,
    mixed_precision: MixedPrecision = False,
    seed: Seed = 0,
    device: Device = "cpu",
    workers: Workers = 0,
    skip_bad: SkipBad = False,
    biased_class: BiasedClass = None,
    share: Share = None,
    work: Annotated[
        Path, typer.Option(help="Folder for models and caches, where `reproduce` looks for them too.")
    ] = _RESULTS / "work",
) -> None:
    """Train a model on the poisoned images of a dataset, by the paper's recipe; stops and resumes.

    On several GPUs: torchrun --nproc-per-node 4 --no-python hansfree train ... --device cuda
    """
    from hansfree._internal.files import write_text
    from hansfree.pipeline.workspace import keep_in_memory
    from hansfree_paper.subjects import BaseModels

    options: dict[str, Any] = {"trained": trained, "epochs": epochs, "seed": seed, "device": device, "workers": workers}
    options |= {"momentum": momentum, "mixed_precision": mixed_precision}
    plan = _plan(data, model, weights, **options)
    with _joined_processes(device), progress_bars() as progress:
        shown = {"artifact": artifact, "size": size, "seed": seed, "skip_bad": skip_bad}
        study = _open_dataset(data, root, biased_class, share, progress=progress, **shown)
        images = keep_in_memory(study.data(model), progress=progress).learned
        models = BaseModels(study=study, plan=plan, work=work, progress=progress)
        _, path = models.trained(images, "biased model")
    for sentence in study.remarks:
        console.print(sentence)
    record = path.with_suffix(".skipped.txt")
    record.unlink(missing_ok=True)  # of an earlier run
    if study.skipped:
        write_text(record, "".join(f"{sentence}\n" for sentence in study.skipped))
        console.print(f"left out: {len(study.skipped)} files, listed in {record}")
    console.print(f"model: {path}")


@contextmanager
def _joined_processes(device: str) -> Iterator[None]:
    """Join the processes that torchrun has started, if it has; "cuda" then is a GPU of this one's own."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    import torch

    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()  # its threads would abort the process at its end


@app.command()
def reproduce(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Which experiment; without it, all are listed.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help=f"NAME, or NAME=FOLDER once per dataset for one page of all; {_DATA}")
    ] = None,
    root: Root = None,
    artifact: Annotated[
        list[str] | None, typer.Option(help=f"{_ARTIFACT} Once per artifact, or all. [default: the first]")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"{_MODEL}; once per model, or all for the paper's three. [default: resnet18]"),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(help=f"{_WEIGHTS}; once, or once per model. {_DEFAULT_WEIGHTS}"),
    ] = None,
    trained: TrainedPart = "whole",
    epochs: Annotated[
        list[int] | None, typer.Option(min=1, help="Of that training; once, or once per model. [default: the recipe]")
    ] = None,
    corrected: Annotated[str, typer.Option(help="What corrections fine-tune: all after the layer, or last.")] = "all",
    correction_epochs: Annotated[int, typer.Option(min=1, help="Epochs of every correction.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Seeds of the correction.")] = 1,
    grid: Annotated[
        str | None,
        typer.Option(
            help="Strengths: own, or the paper's 22 in its units. [default: paper for its datasets, else own]"
        ),
    ] = None,
    selection: Annotated[
        str, typer.Option(help="Rule that selects a strength: the paper's, or own with a budget for clean accuracy.")
    ] = "paper",
    strengths: Annotated[list[str] | None, typer.Option(help="METHOD=0.1,1,10 instead of the grid.")] = None,
    precision: Annotated[str, typer.Option(help="Of activations on disk: float32, float16.")] = "float32",
    subset_correction: Annotated[
        int | None, typer.Option(min=2, help="Correct on the biased class and each Nth other image (published: 100).")
    ] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="METHOD, or MODEL:METHOD, that is not run.")] = None,
    size: Annotated[
        list[int] | None, typer.Option(min=32, help="In pixels; once, or once per model. [default: the dataset's]")
    ] = None,
    momentum: Momentum = None,
    mixed_precision: MixedPrecision = False,
    seed: Seed = 0,
    device: Device = "cpu",
    workers: Workers = 0,
    skip_bad: SkipBad = False,
    biased_class: BiasedClass = None,
    share: Share = None,
    engine: Engine = "local",
    address: Address = None,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = _RESULTS,
    work: Annotated[Path | None, typer.Option(help="Folder for models, caches and runs. [default: OUT/work]")] = None,
) -> None:
    """Run one of the paper's experiments; stops and resumes."""
    from hansfree.models import PAPER_MODELS
    from hansfree.pipeline.ray import open_executor
    from hansfree_paper.runner import Reproduction
    from hansfree_paper.runner import reproduce as run

    if name is None:
        _list_experiments()
        return
    Reproduction.named(name)  # before anything starts
    sources = _sources(data, root)
    models = list(PAPER_MODELS) if model == [_ALL] else model or ["resnet18"]
    options: dict[str, Any] = {"trained": trained, "corrected": corrected, "selection": selection}
    options |= {"precision": precision, "subset_correction": subset_correction, "mixed_precision": mixed_precision}
    options |= {"strengths": _strengths(strengths or []), "repeats": repeats, "seed": seed, "device": device}
    options |= {"correction_epochs": correction_epochs, "workers": workers, "momentum": momentum}
    sizes = _per_model("size", size, models)
    plans = {
        source: [
            _plan(
                source,
                each,
                file,
                epochs=many,
                grid=grid or ("own" if _dataset_named(source).published is None else "paper"),
                left_out=_left_out(leave_out or [], each),
                **options,
            )
            for each, file, many in zip(
                models, _per_model("weights", weights, models), _per_model("epochs", epochs, models)
            )
        ]
        for source in sources
    }
    subjects = []
    with open_executor(engine, address=address) as executor, progress_bars() as progress:
        for source, folder in sources.items():
            artifacts: list[str | None] = [*artifact] if artifact else [None]
            if artifact == [_ALL]:
                artifacts = [*_dataset_named(source).artifacts]
            shown = {"artifact": artifacts[0], "seed": seed, "skip_bad": skip_bad}
            datasets = {
                pixels: _open_dataset(source, folder, biased_class, share, progress=progress, size=pixels, **shown)
                for pixels in dict.fromkeys(sizes)
            }
            subjects += [
                (datasets[pixels].with_artifact(one), plan)
                for plan, pixels in zip(plans[source], sizes)
                for one in artifacts
            ]
        command = f"{context.find_root().info_name} {shlex.join(sys.argv[1:])}"
        folders = {"out": out, "work": work or out / "work"}
        page = run(name, subjects, **folders, executor=executor, command=command, progress=progress)
    console.print(f"results: {page}")


def _list_experiments() -> None:
    from hansfree_paper.dataset import BenchmarkDataset
    from hansfree_paper.runner import Reproduction

    experiments = new_table(left=["experiment", "what it is"])
    for name, experiment in Reproduction.members().items():
        experiments.add_row(name, experiment.title)
    datasets = new_table(left=["--data", "what it is", "--root", "--artifact"])
    for table in (experiments, datasets):
        table.columns[0].no_wrap = True
    for name, dataset in BenchmarkDataset.members().items():
        marked = f"{name} *" if dataset.is_default else name
        artifacts = ", ".join(filter(None, (*dataset.artifacts, dataset.further_artifacts)))
        datasets.add_row(marked, dataset.title, "needed" if dataset.needs_root else "none", artifacts)
    for table in (experiments, datasets):
        show_table(table)
        console.print()
    console.print("* is taken without --data, the first artifact without --artifact.")


def _dataset_named(data: str | None) -> type[BenchmarkDataset]:
    from hansfree_paper.dataset import BenchmarkDataset

    if data is None:
        return BenchmarkDataset.default()
    spelled = data.replace("-", "_")
    return BenchmarkDataset.named(spelled if spelled in BenchmarkDataset.members() else data)


def _sources(data: list[str] | None, root: Path | None) -> dict[str | None, Path | None]:
    """Return each dataset's folder, by the dataset's name; None is the default dataset."""
    from hansfree.errors import OptionError

    found: dict[str | None, Path | None] = {None: root} if not data else {}
    for word in data or []:
        given, _, folder = word.partition("=")
        name = _dataset_named(given).name
        if name in found:
            raise OptionError(f"--data names {name} twice. Give each dataset once.")
        if root is not None and (folder or len(data or []) > 1):
            raise OptionError("--root is the folder of the only dataset. Give each its own: --data NAME=FOLDER.")
        found[name] = Path(folder) if folder else root
    return found


def _plan(data: str | None, model: str, weights: str | None, **options: Any) -> Plan:
    from hansfree_paper.subjects import Plan

    return Plan(model=model, weights=initial_weights(data, model, weights), **options)


def _open_dataset(
    data: str | None, root: Path | None, biased_class: str | None, share: float | None, **options: Any
) -> BenchmarkDataset:
    """Return the dataset with all of its files checked."""
    from hansfree.errors import OptionError

    member = _dataset_named(data)
    for option, value in (("biased_class", biased_class), ("share", share)):
        if value is not None and option not in member.options:
            raise OptionError(f"{member.title} has its own bias: leave out --{option.replace('_', '-')}.")
        if value is not None:
            options[option] = value
    return member(root, **options)


def initial_weights(data: str | None, model: str, given: str | None) -> str | None:
    """Return what training starts from; weights that cannot be used raise before the images of a dataset are read."""
    from hansfree.models import PRETRAINED, architecture_named, check_weights
    from hansfree_paper.starts import check_start

    known = architecture_named(model)
    if given is None:  # as in the paper, on its datasets
        return PRETRAINED if _dataset_named(data).published is not None and known.has_pretrained else None
    if given == _RANDOM:
        return None
    check_weights(given, words=(PRETRAINED, _RANDOM))
    check_start(model, given)
    return given


def _per_model(option: str, given: Sequence[Given] | None, models: list[str]) -> list[Given | None]:
    """Return a value per model: one for all, or one each in the same order; None for all where none is given."""
    from hansfree.errors import OptionError

    values: list[Given | None] = [*given] if given else [None]
    if len(values) not in (1, len(models)):
        raise OptionError(f"Give --{option} once, or once for each of {len(models)} models, not {len(values)} times.")
    return values if len(values) == len(models) else values * len(models)


def _strengths(given: list[str]) -> dict[str, tuple[float, ...]]:
    from hansfree.corrections import LatentCorrection
    from hansfree.errors import OptionError

    found = {}
    for word in given:
        method, _, values = word.partition("=")
        LatentCorrection.named(method)
        try:
            found[method] = tuple(map(float, values.split(",")))
        except ValueError:
            raise OptionError(f"--strengths is {word!r}; expected METHOD=0.1,1,10 with numbers.") from None
    return found


def _left_out(given: list[str], model: str) -> tuple[str, ...]:
    """Return the methods that are not run with this model."""
    from hansfree.corrections import LatentCorrection
    from hansfree.models import architecture_named

    pairs = [word.rpartition(":") for word in given]
    for of, _, method in pairs:
        LatentCorrection.named(method)
        if of:
            architecture_named(of)
    return tuple(method for of, _, method in pairs if of in ("", model))
