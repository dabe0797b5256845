"""``hansfree init``, ``check`` and ``run``: your own model and images."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hansfree.cli.app import app
from hansfree.cli.asking import as_path, ask, ask_artifact, ask_model_files, no_folder, not_insertable
from hansfree.cli.listing import Listing
from hansfree.cli.terminal import console, progress_bars, show_methods

if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.datasets.images import Resize
    from hansfree.runfile import Asked, Opened

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run file; `hansfree init` writes a first one.")]


@app.command(cls=Listing)
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run file to write.")] = Path("hansfree.yaml"),
    model: Annotated[
        str | None,
        typer.Option(help="timm:NAME, torchvision:NAME, hf:FOLDER, package.module:function, file.py:function."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Trained weights: .safetensors, .pt or .pth; or pretrained.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="What the model's outputs are: classes, binary (one logit), or label (multi-label). [default: seen]",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="With --output label: the label to correct.")] = None,
    layer: Annotated[
        str, typer.Option(help="Where the bias is looked for; `hansfree layers` lists the names.")
    ] = "auto",
    root: Annotated[Path | None, typer.Option(help="Folder of the images.")] = None,
    table: Annotated[Path | None, typer.Option(help="CSV: image, label[, artifact][, split][, group].")] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Without a table: file that lists the artifact images.")
    ] = None,
    classes: Annotated[str | None, typer.Option(help="Names in the order of the model's outputs, with commas.")] = None,
    biased_class: Annotated[str | None, typer.Option(help="Class that the artifact leaks into.")] = None,
    insert: Annotated[str | None, typer.Option(help="Artifact to put in: {insertable}.")] = None,
    patch: Annotated[Path | None, typer.Option(help="Picture with transparency, for --insert patch.")] = None,
    scale: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="The patch's part of an image's side. [default: 0.25]")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the images in pixels. [default: the library's, or 224]")
    ] = None,
    resize: Annotated[
        str | None, typer.Option(help="How images get there: squash or crop. [default: the library's, or squash]")
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Of each channel, with commas. [default: the library's, or the usual]")
    ] = None,
    std: Annotated[str | None, typer.Option(help="Likewise; goes with --mean.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: hansfree-run beside FILE]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a commented run file; what the flags leave open is asked."""
    from hansfree._internal.files import neighbour, refuse_existing

    refuse_existing(file, force=force)  # before the questions
    if insert:
        _check_insert(insert, {"--patch": patch, "--scale": scale})
    scaling = _read_resize(resize)
    means, stds = _read_spread(mean, std)
    source, weights = ask_model_files(model, weights)
    if output == "label":
        label = label or ask("Which label is to be corrected", flag="--label")
    root = root or Path(ask("Folder of the images", flag="--root", check=no_folder))
    table, artifacts, insert, patch = ask_artifact(table, artifacts, insert, patch)
    _check_insert(insert, {"--patch": patch, "--scale": scale})
    classes = classes or ask(
        "Names of the classes in the order of the model's outputs, with commas (empty: the alphabet's)", default=""
    )
    out = out or as_path(ask("Folder of the run (empty: hansfree-run beside the file)", default=""))

    from hansfree.models import load_model  # after the questions: it takes seconds
    from hansfree.runfile import Answers, look_at, missing_paths, write_run_file

    answers = Answers(
        source=source,
        weights=weights,
        output=output,
        label=label,
        layer=layer,
        root=root,
        table=table,
        artifacts=artifacts,
        classes=[name.strip() for name in classes.split(",")] if classes else None,
        biased_class=biased_class,
        insert=insert,
        file=patch,
        scale=scale,
        size=size,
        resize=scaling,
        mean=means,
        std=stds,
        out=out,
    )
    for path in missing_paths(answers):
        console.print(f"{path} is not there yet.{neighbour(path)}", soft_wrap=True, highlight=False)
    seen = look_at(load_model(answers.source, weights=answers.weights), answers)
    for sentence in seen.sentences:
        console.print(sentence, soft_wrap=True, highlight=False)
    write_run_file(file, seen.answers, seen.preprocessing, force=force)
    console.print(f"Wrote {file}. Look through it, then: hansfree check {file}", soft_wrap=True)


@app.command()
def check(file: File) -> None:
    """Look whether a run can start: keys, files, classes, layer, what the model answers; nothing is written."""
    from hansfree.runfile import check_unchanged, open_run_file, read_run_file

    with progress_bars() as progress:
        opened = open_run_file(read_run_file(file), progress=progress)
        check_unchanged(opened)
        asked = _ask_answers(opened, progress)
    _tell(opened, asked)
    if asked.doubt is not None and asked.doubt.is_order:
        raise typer.Exit(1)
    fits = "All fits together." if asked.doubt is None else "All else fits together."
    console.print(f"{fits} To start: hansfree run {file}", soft_wrap=True)


@app.command()
def run(
    file: File,
    engine: Annotated[str, typer.Option(help="Where it is computed: local, or ray (many machines).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: auto or HOST:PORT. [default: as Ray finds it]")
    ] = None,
) -> None:
    """Find the bias in your model, unlearn it, prove what is left, and export the corrected weights; resumes."""
    from hansfree._internal.files import tell_path
    from hansfree.engines import open_engine
    from hansfree.runfile import carry_out, open_run_file, read_run_file

    plan, command = read_run_file(file), f"hansfree {shlex.join(sys.argv[1:])}"
    with open_engine(engine, address=address) as opened_engine, progress_bars() as progress:
        opened = open_run_file(plan, progress=progress)
        is_new = not (plan.out / "config.yaml").exists()  # a run that was begun has told what the model answers
        _tell(opened, _ask_answers(opened, progress) if is_new else None)
        finished = carry_out(opened, engine=opened_engine, command=command, progress=progress)
    show_methods(finished.rows)
    for line in finished.sentences:
        console.print(line, soft_wrap=True)
    console.print(f"report: {tell_path(finished.report)}", soft_wrap=True)


def _ask_answers(opened: Opened, progress: Progress) -> Asked:
    from hansfree.runfile import ask_model

    return ask_model(opened.setting.model, opened.setting.data.val_clean, progress=progress)


def _tell(opened: Opened, asked: Asked | None) -> None:
    """Print what was found, and what the model answered where it was asked."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    answers = [] if asked is None else [("answers", asked.sentence)]
    for name, sentence in (*opened.facts, *answers):
        table.add_row(name, sentence)
    console.print(table)
    if asked is not None and asked.doubt is not None:
        console.print(asked.doubt.sentence, soft_wrap=True, highlight=False)
        if asked.doubt.is_order:
            console.print("Mend that first: while the order looks wrong, a run recommends no model.", soft_wrap=True)


def _check_insert(insert: str | None, about: dict[str, object]) -> None:
    """Refuse what cannot be put in, and options about a patch where none is put in: they would change nothing."""
    if wrong := not_insertable(insert or ""):
        raise typer.BadParameter(f"--insert: {wrong}")
    for flag, given in about.items():
        if given is not None and insert != "patch":
            raise typer.BadParameter(
                f"{flag} is about a patch. Give --insert patch --patch PICTURE.png too, or leave {flag} out."
            )


def _read_resize(given: str | None) -> Resize | None:
    """Return how images are scaled; None where nothing is given."""
    if given is None:
        return None

    from hansfree.datasets.images import Resize
    from hansfree.errors import check_choice

    check_choice("--resize", given, Resize)
    return cast("Resize", given)


def _read_spread(mean: str | None, std: str | None) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Return mean and std of the channels; refuse what no image could be prepared with."""
    from hansfree.errors import OptionError

    means, stds = _read_numbers("--mean", mean), _read_numbers("--std", std)
    if len(means or ()) != len(stds or ()) or len(means or ()) not in (0, 1, 3):
        raise OptionError("--mean and --std go together: three numbers each, or one for grey images.")
    if stds is not None and min(stds) <= 0:
        raise OptionError(f"--std is {std!r}: each number is above 0.")
    return means, stds


def _read_numbers(flag: str, given: str | None) -> tuple[float, ...] | None:
    from hansfree.errors import OptionError

    if given is None:
        return None
    try:
        numbers = tuple(map(float, given.split(",")))
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):  # no run file takes nan or inf
        raise OptionError(f"{flag} is {given!r}: numbers with commas are expected, as 0.5,0.5,0.5.")
    return numbers
