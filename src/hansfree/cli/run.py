"""``hansfree init``, ``check``, ``run``, ``demo`` and ``report``."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hansfree.cli.init import (
    as_path,
    ask,
    ask_artifact,
    ask_model_files,
    no_folder,
    not_insertable,
)
from hansfree.cli.terminal import Listing, app, console, progress_bars, show_methods

if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.data.images import Resize
    from hansfree.pipeline.checks import PreparedRun
    from hansfree.pipeline.class_order import ClassOrderCheck

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run file; `hansfree init` writes one.")]


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
            help="Meaning of the outputs: classes, binary (one logit), or label (multi-label). [default: found]",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="With --output label: the label to correct.")] = None,
    layer: Annotated[
        str, typer.Option(help="Where the direction is fitted; `hansfree layers` lists the names.")
    ] = "auto",
    root: Annotated[Path | None, typer.Option(help="Folder of the images.")] = None,
    table: Annotated[Path | None, typer.Option(help="CSV: image, label[, artifact][, split][, group].")] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Without a table: file that lists the artifact images.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Class names in the order of the model's outputs, separated by commas.")
    ] = None,
    biased_class: Annotated[str | None, typer.Option(help="Class that the artifact indicates.")] = None,
    insert: Annotated[str | None, typer.Option(help="Artifact to insert: {insertable}.")] = None,
    patch: Annotated[Path | None, typer.Option(help="Image with transparency, for --insert patch.")] = None,
    scale: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="Size of the patch as a fraction of the image's side. [default: 0.25]"),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Side of the images in pixels. [default: the library's, or 224]")
    ] = None,
    resize: Annotated[
        str | None, typer.Option(help="Resizing: squash or crop. [default: the library's, or squash]")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(help="Mean of each channel, separated by commas. [default: the library's, or ImageNet's]"),
    ] = None,
    std: Annotated[str | None, typer.Option(help="Standard deviation of each channel; needs --mean.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. [default: hansfree-run beside FILE]")] = None,
    every_key: Annotated[bool, typer.Option("--all", help="Write every key, with comments.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a run file; asks for what the flags leave open."""
    from hansfree._internal.files import refuse_existing, suggest_path

    refuse_existing(file, force=force)  # before the questions
    if insert:
        _check_insert(insert, {"--patch": patch, "--scale": scale})
    scaling = _read_resize(resize)
    means, stds = _read_spread(mean, std)
    source, weights = ask_model_files(model, weights)
    if output == "label":
        label = label or ask("Label to correct", flag="--label")
    root = root or Path(ask("Folder of the images", flag="--root", check=no_folder))
    table, artifacts, insert, patch = ask_artifact(table, artifacts, insert, patch)
    _check_insert(insert, {"--patch": patch, "--scale": scale})
    classes = classes or ask(
        "Class names in the order of the model's outputs, separated by commas (empty: alphabetical)", default=""
    )
    out = out or as_path(ask("Run directory (empty: hansfree-run beside the file)", default=""))

    from hansfree.cli.init import (
        Answers,
        inspect_model,
        missing_paths,
        write_run_file,
    )
    from hansfree.models import load_model  # after the questions: it takes seconds

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
        console.print(f"{path} does not exist yet.{suggest_path(path)}", soft_wrap=True, highlight=False)
    seen = inspect_model(load_model(answers.source, weights=answers.weights), answers)
    for sentence in seen.sentences:
        console.print(sentence, soft_wrap=True, highlight=False)
    write_run_file(file, seen.answers, seen.preprocessing, every_key=every_key, force=force)
    console.print(f"Wrote {file}. Next: hansfree check {file}", soft_wrap=True)


@app.command()
def check(file: File) -> None:
    """Check a run file without writing anything: keys, files, classes, layer, first predictions."""
    from hansfree.pipeline.checks import prepare_run
    from hansfree.pipeline.config import read_run_file
    from hansfree.pipeline.identity import check_unchanged

    with progress_bars() as progress:
        prepared = prepare_run(read_run_file(file), progress=progress)
        check_unchanged(prepared)
        asked = _check_order(prepared, progress)
    _show_facts(prepared, asked)
    if asked.doubt is not None and asked.doubt.is_order:
        raise typer.Exit(1)
    passed = "All checks passed." if asked.doubt is None else "All other checks passed."
    console.print(f"{passed} Next: hansfree run {file}", soft_wrap=True)


@app.command()
def run(
    file: File,
    engine: Annotated[str, typer.Option(help="Where tasks run: local, or ray (a cluster).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster: auto or HOST:PORT. [default: found by Ray]")
    ] = None,
) -> None:
    """Diagnose and correct a model, measure what is left of the bias, export the corrected weights; resumes."""
    from hansfree import api
    from hansfree._internal.files import display_path
    from hansfree.pipeline.checks import prepare_run
    from hansfree.pipeline.config import read_run_file
    from hansfree.pipeline.executors import open_executor

    plan, command = read_run_file(file), f"hansfree {shlex.join(sys.argv[1:])}"
    with open_executor(engine, address=address) as executor, progress_bars() as progress:
        prepared = prepare_run(plan, progress=progress)
        is_new = not (plan.out / "config.yaml").exists()  # a resumed run has shown the class order before
        _show_facts(prepared, _check_order(prepared, progress) if is_new else None)
        finished = api.run(prepared, executor=executor, command=command, progress=progress)
    show_methods(finished.rows)
    for line in finished.sentences:
        console.print(line, soft_wrap=True)
    console.print(f"report: {display_path(finished.report)}", soft_wrap=True)


def _check_order(prepared: PreparedRun, progress: Progress) -> ClassOrderCheck:
    from hansfree.pipeline.class_order import check_class_order

    return check_class_order(prepared.setting.model, prepared.setting.data.val_clean, progress=progress)


def _show_facts(prepared: PreparedRun, asked: ClassOrderCheck | None) -> None:
    """Print what was found, and the result of the class-order check."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    answers = [] if asked is None else [("answers", asked.sentence)]
    for name, sentence in (*prepared.facts, *answers):
        table.add_row(name, sentence)
    console.print(table)
    if asked is not None and asked.doubt is not None:
        console.print(asked.doubt.sentence, soft_wrap=True, highlight=False)
        if asked.doubt.is_order:
            console.print("Fix that first: while the order looks wrong, a run recommends no model.", soft_wrap=True)


def _check_insert(insert: str | None, about: dict[str, object]) -> None:
    """Raise for artifacts that cannot be inserted, and for options of a patch without a patch."""
    if wrong := not_insertable(insert or ""):
        raise typer.BadParameter(f"--insert: {wrong}")
    for flag, given in about.items():
        if given is not None and insert != "patch":
            raise typer.BadParameter(
                f"{flag} needs a patch. Add --insert patch --patch IMAGE.png, or leave {flag} out."
            )


def _read_resize(given: str | None) -> Resize | None:
    """Return the resizing, or None."""
    if given is None:
        return None

    from hansfree.data.images import Resize
    from hansfree.errors import check_choice

    check_choice("--resize", given, Resize)
    return cast("Resize", given)


def _read_spread(mean: str | None, std: str | None) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Return mean and std of the channels; raise OptionError for invalid ones."""
    from hansfree.errors import OptionError

    means, stds = _read_numbers("--mean", mean), _read_numbers("--std", std)
    if len(means or ()) != len(stds or ()) or len(means or ()) not in (0, 1, 3):
        raise OptionError("Give --mean and --std together: three numbers each, or one for grey images.")
    if stds is not None and min(stds) <= 0:
        raise OptionError(f"--std is {std!r}; each number must be above 0.")
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
        raise OptionError(f"{flag} is {given!r}; expected numbers separated by commas, such as 0.5,0.5,0.5.")
    return numbers


@app.command(cls=Listing)
def demo(
    artifact: Annotated[str, typer.Option(help="One of {artifacts}.")] = "timestamp",
    model: Annotated[str, typer.Option(help="Architecture; an unknown name lists all.")] = "demo",
    size: Annotated[int, typer.Option(help="Image size in pixels.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of data, training and correction.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run directory; the same command resumes. "
            "[default: hansfree-demo, followed by options that differ from their defaults]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images and epochs.")] = False,
) -> None:
    """Train a network on biased images, diagnose the shortcut, correct it with five methods, write a report."""
    from hansfree.demo import Demo

    options = {"artifact": artifact, "model": model, "size": size, "seed": seed}
    plan = Demo.quick(**options) if quick else Demo(**options)  # type: ignore[arg-type]
    changed = [f"{name}-{value}" for name, value in options.items() if value != getattr(Demo, name)]
    folder = out or Path("-".join(["hansfree-demo", *(["quick"] if quick else []), *changed]))
    with progress_bars() as progress:
        rows, verdict, report = plan.run(folder, command=f"hansfree {shlex.join(sys.argv[1:])}", progress=progress)
    show_methods(rows)
    for line in verdict:
        console.print(line, highlight=False)
    console.print(f"report: {report}", soft_wrap=True)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Directory of a finished run.")]) -> None:
    """Write the report of a finished run again."""
    from hansfree.report import write_report

    console.print(f"report: {write_report(run)}", soft_wrap=True)
