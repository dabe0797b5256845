"""What ``hansfree train`` and ``hansfree reproduce`` share: the options that choose a dataset and its bias."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.studies import Study

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
"""Where pages, and models and caches behind them, go where nobody says otherwise."""

_RANDOM = "random"


def find_study(data: str | None) -> type[Study]:
    """Return the dataset of that name, or the default."""
    from hansfree.studies import Study

    return Study.default() if data is None else Study.named(data)


def first_weights(data: str | None, model: str, given: str | None) -> str | None:
    """Return what training starts from: what the user says, or what the paper does on its datasets.

    Weights that cannot be used are refused here, before all images of a dataset are read.
    """
    from hansfree.models import architecture_named, check_start
    from hansfree.weights import PRETRAINED, check_weights

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
) -> Study:
    """Return the dataset with all of its files checked."""
    from hansfree.errors import OptionError

    member = find_study(data)
    further = {"biased_class": biased_class, "share": share}
    given = {option: value for option, value in further.items() if value is not None}
    if unknown := [option for option in given if option not in member.options]:
        raise OptionError(f"{member.title} has its own bias: leave out --{unknown[0].replace('_', '-')}.")
    options = {"artifact": artifact, "size": size, "seed": seed, "skip_bad": skip_bad, **given}
    return member(root, progress=progress, **options)  # type: ignore[arg-type]
