"""``hansfree init``: questions, what the model shows, and the run file."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
import yaml

from hansfree.cli.terminal import INSERTABLE, app, console

if TYPE_CHECKING:
    from torch import nn

    from hansfree.data.images import Resize as Resizing
    from hansfree.models import Preprocessing
    from hansfree.models.adapters import Output

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*(:\w[\w.-]*)?", re.ASCII)  # timm:resnet18 and file.py:build too


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The user's answers about model, images and artifact."""

    source: str
    root: Path
    weights: str | None = None
    output: str | None = None  # None: what the model shows
    label: str | None = None
    layer: str = "auto"
    table: Path | None = None
    artifacts: Path | None = None
    classes: Sequence[str] | None = None
    biased_class: str | None = None
    insert: str | None = None
    file: Path | None = None
    scale: float | None = None
    size: int | None = None  # None, as in the next three: what the model's library says
    resize: Resizing | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    out: Path | None = None  # None: beside the file


@app.command()
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
        typer.Option(help="Outputs: classes, binary (one logit), or label (multi-label). [default: found]"),
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
    insert: Annotated[str | None, typer.Option(help=f"Artifact to insert: {', '.join(INSERTABLE)}.")] = None,
    patch: Annotated[Path | None, typer.Option(help="Image with transparency, for --insert patch.")] = None,
    scale: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="Size of the patch as a fraction of the image's side. [default: 0.25]"),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(min=1, max=2**14, help="Side of the images in pixels. [default: the library's, or 224]"),
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
    from hansfree.errors import OptionError, check_choice

    refuse_existing(file, force=force)  # before the questions
    if insert and (wrong := _insert_error(insert)):
        raise typer.BadParameter(f"--insert: {wrong}")
    for flag, given in (("--patch", patch), ("--scale", scale)):
        if given is not None and insert != "patch":
            raise typer.BadParameter(
                f"{flag} needs a patch. Add --insert patch --patch IMAGE.png, or leave {flag} out."
            )
    if table is not None and artifacts is not None:
        raise typer.BadParameter("A table has a column for the artifact. Leave out --artifacts.")
    means, stds = _read_mean_and_std(mean, std)
    if resize is not None:
        from hansfree.data.images import Resize

        check_choice("--resize", resize, Resize)
    if wrong := _source_error(model or "") or _weights_error(weights or ""):
        raise OptionError(wrong)
    model = model or _ask("Model source (timm:NAME, file.py:function, ...)", flag="--model", error=_source_error)
    weights = weights or _ask("Trained weights (empty: as the source builds it)", default="", error=_weights_error)
    if output == "label":
        label = label or _ask("Label to correct", flag="--label")
    root = root or Path(_ask("Folder of the images", flag="--root", error=_folder_error))
    if table is None and artifacts is None and insert is None:
        table = _ask_file("CSV with the columns image, label, artifact (empty: the folders are the classes)")
        artifacts = None if table else _ask_file("File that lists the images with the artifact (empty: none)")
        if table is None and artifacts is None:
            question = f"Artifact to insert into the images: {', '.join(INSERTABLE)}"
            insert = _ask(question, flag="--insert", error=_insert_error)
    if insert == "patch" and patch is None:
        patch = Path(_ask("Picture to paste, with a transparent background", flag="--patch", error=_file_error))
    classes = classes or _ask(
        "Class names in the order of the model's outputs, separated by commas (empty: alphabetical)", default=""
    )
    if out is None and (answer := _ask("Run directory (empty: hansfree-run beside the file)", default="")):
        out = Path(answer)

    from hansfree.models import load_model  # after the questions: it takes seconds

    answers = Answers(
        source=os.path.expanduser(model),  # no shell expanded it
        weights=os.path.expanduser(weights) or None,
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
        resize=cast("Resizing | None", resize),
        mean=means,
        std=stds,
        out=out,
    )
    for path in (root, table, artifacts, patch):
        if path is not None and not path.expanduser().exists():
            console.print(f"{path} does not exist yet.{suggest_path(path)}")
    built = load_model(answers.source, weights=answers.weights)
    answers, preprocessing, note = inspect_model(built, answers)
    if note:
        console.print(note)
    preprocessing, note = measure_preprocessing(built, answers, preprocessing)
    if note:
        console.print(f"size is set to {preprocessing.size} and resize to {preprocessing.resize}: {note}.")
    write_run_file(file, answers, preprocessing, every_key=every_key, resize_note=note)
    if refused := _why_refused(file):
        console.print(f"Wrote {file}, which `hansfree check` does not accept yet: {refused}")
    else:
        console.print(f"Wrote {file}. Next: hansfree check {file}")


def _why_refused(file: Path) -> str:
    """Return what does not fit together in a run file; empty where only the images are left to check."""
    from hansfree.errors import HansfreeError
    from hansfree.pipeline.checks import check_lists
    from hansfree.pipeline.config import read_run_file

    try:
        check_lists(read_run_file(file))
    except HansfreeError as error:
        return str(error)
    return ""


def inspect_model(model: nn.Module, answers: Answers) -> tuple[Answers, Preprocessing, str]:
    """Pass a blank image through the model; return answers with its output, its preprocessing, and a note."""
    import torch

    from hansfree.errors import OptionError
    from hansfree.models import Preprocessing, find_logits, preprocessing_of
    from hansfree.pipeline.checks import resolve_preprocessing
    from hansfree.pipeline.config import DataSection

    known = preprocessing_of(answers.source, model)
    section = DataSection(
        root=answers.root, size=answers.size, resize=answers.resize, mean=answers.mean, std=answers.std
    )
    channels = len(answers.mean) if answers.mean else None
    given = resolve_preprocessing(section.model_copy(update={"channels": channels}), known)
    # Without preprocessing from the library or the user, three channels are tried first, then one.
    grey = Preprocessing(size=given.size, channels=1, mean=(0.5,), std=(0.5,), resize=given.resize)
    problem = None
    for prepared in (given,) if known or answers.mean else (given, grey):
        try:
            logits = find_logits(model, torch.zeros(2, prepared.channels, prepared.size, prepared.size))
        except OptionError as error:
            problem = problem or str(error)
            continue
        is_single = logits.ndim == 1 or logits.shape[1] == 1
        output = answers.output or ("binary" if is_single else "classes")
        is_news = is_single and not answers.output
        note = "The model returns one logit per image: output is set to binary." if is_news else ""
        return replace(answers, output=output), prepared, note
    note = f"Set size and channels of the images in the file. {problem}"
    return replace(answers, output=answers.output or "classes"), given, note


def measure_preprocessing(
    model: nn.Module, answers: Answers, preprocessing: Preprocessing
) -> tuple[Preprocessing, str]:
    """Return the preprocessing with the size and resizing that fit the model best, and what was measured.

    Nothing is measured where the user has chosen, the weights are not given, or images or model cannot be used:
    `hansfree check` says why.
    """
    import torch

    from hansfree.data.listing import Listing
    from hansfree.errors import HansfreeError
    from hansfree.models import adapt
    from hansfree.pipeline.class_order import choose_preprocessing

    is_chosen = answers.resize is not None and answers.size is not None
    if is_chosen or answers.weights is None or answers.output == "label":
        return preprocessing, ""
    table = None if answers.table is None else answers.table.expanduser()
    try:
        listing = Listing.read(answers.root.expanduser(), table=table, classes=answers.classes)
        blank = torch.zeros(2, preprocessing.channels, preprocessing.size, preprocessing.size)
        adapted = adapt(model, blank, output=cast("Output", answers.output)).eval()
        found = choose_preprocessing(
            adapted, listing, preprocessing, resize=answers.resize, keep_size=answers.size is not None
        )
    except (HansfreeError, OSError):
        return preprocessing, ""
    if found.doubt is not None and found.doubt.is_order:
        console.print(found.doubt.sentence)
    if len(found.accuracies) == 1:
        return preprocessing, ""
    numbers = ", ".join(f"{size} px {way} {100 * value:.1f} %" for (size, way), value in found.accuracies.items())
    level = "" if found.is_clear else ", which is level"
    chosen = replace(preprocessing, size=found.size, resize=found.resize)
    order = " in the best class order" if found.doubt is not None and found.doubt.is_order else ""
    return chosen, f"balanced accuracy on {found.n} images{order}: {numbers}{level}"


def write_run_file(
    path: Path, answers: Answers, preprocessing: Preprocessing, *, every_key: bool = False, resize_note: str = ""
) -> None:
    """Write a run file; with ``every_key`` also the keys that have defaults, as comments."""
    from hansfree._internal.files import open_templates, write_text

    template = open_templates("cli", is_html=False).get_template(
        "run_all.yaml.jinja" if every_key else "run.yaml.jinja"
    )
    quoted = {name: _quoted(value) for name, value in asdict(_relative_to(path, answers)).items()}
    input_keys = {**asdict(preprocessing), "mean": list(preprocessing.mean), "std": list(preprocessing.std)}
    about = {"scale": answers.scale, "resize_note": resize_note}
    write_text(path, template.render({**quoted, **_choices(answers.output), **input_keys, **about}))


def _choices(output: str | None) -> dict[str, object]:
    """Return the methods to propose for an output, and the registered names that the comments list."""
    from hansfree.cavs import CAV
    from hansfree.corrections import DeepCorrection, LatentCorrection, Need
    from hansfree.corrections.training import Optimizer
    from hansfree.data.artifacts import Artifact, Place
    from hansfree.pipeline.config import CorrectionSection

    methods, cavs, defaults = LatentCorrection.members(), CAV.members(), CorrectionSection()
    best, usual = (  # a whole network would be changed for all labels
        tuple(name for name in names if output != "label" or name in methods)
        for names in (("vanilla", "rr-clarc", "logit-pairing", "match"), defaults.methods)
    )
    return {
        "best": best,
        "usual": usual,
        "insertable": list(Artifact.for_images()),
        "places": get_args(Place),
        "methods": list(methods),
        "deep": list(DeepCorrection.members()),
        "need_masks": tuple(name for name, member in methods.items() if Need.MASKS in member.info.needs),
        "need_pairs": tuple(name for name, member in methods.items() if Need.PAIRS in member.info.needs),
        "cavs": list(cavs),
        "pair_cavs": [name for name in cavs if name not in CAV.from_marks()],
        "optimizers": get_args(Optimizer),
        "defaults": defaults,
    }


def _relative_to(file: Path, answers: Answers) -> Answers:
    """Return the answers with paths relative to the file's folder instead of the working directory."""
    from hansfree.models.weights import PRETRAINED
    from hansfree.pipeline.config import move_source

    folder = file.absolute().parent

    def move(typed: str) -> str:
        if os.path.isabs(os.path.expanduser(typed)) or folder == Path.cwd():
            return typed
        try:
            return os.path.relpath(typed, folder)
        except ValueError:  # on Windows no path leads from one drive to another
            return os.path.abspath(typed)

    def moved(path: Path | None) -> Path | None:
        return None if path is None else Path(move(str(path)))

    weights = answers.weights
    return replace(
        answers,
        root=Path(move(str(answers.root))),
        table=moved(answers.table),
        artifacts=moved(answers.artifacts),
        file=moved(answers.file),
        out=moved(answers.out) or Path("hansfree-run"),
        source=move_source(answers.source, move),
        weights=weights if weights in (None, PRETRAINED) else move(str(weights)),
    )


def _quoted(value: object) -> object:
    """Return a value as YAML writes it: a class called `no`, or a path with a colon, needs quotes."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_quoted(item) for item in value]
    text = str(value)
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=sys.maxsize).strip()


def _ask(
    question: str, *, flag: str = "", default: str | None = None, error: Callable[[str], str] = lambda _: ""
) -> str:
    """Ask until the answer is valid; without a terminal return the default, or raise and name the missing flag."""
    if not sys.stdin.isatty():
        if default is None:
            raise typer.BadParameter(f"{question}? stdin is not a terminal; pass {flag}.")
        return default
    while True:
        answer = str(typer.prompt(question, default=default, show_default=False))
        if not (wrong := error(answer)):
            return answer
        console.print(wrong)


def _ask_file(question: str) -> Path | None:
    answer = _ask(question, default="", error=_file_error)
    return Path(answer) if answer else None


def _folder_error(typed: str) -> str:
    return "" if Path(typed).expanduser().is_dir() else _not_there("folder", typed)


def _file_error(typed: str) -> str:
    return "" if not typed or Path(typed).expanduser().is_file() else _not_there("file", typed)


def _source_error(typed: str) -> str:
    home = typed.rpartition(":")[0]
    return _file_error(home) if home.endswith(".py") else ""


def _weights_error(typed: str) -> str:
    wrong = _file_error(typed)
    if not wrong:
        return ""

    from hansfree.models.weights import PRETRAINED  # only here: it takes seconds

    return "" if typed == PRETRAINED else wrong


def _insert_error(typed: str) -> str:
    from hansfree.errors import nearest

    if typed in INSERTABLE:
        return ""
    return f"{typed} cannot be inserted into images.{nearest(typed, INSERTABLE)} Known: {', '.join(INSERTABLE)}."


def _not_there(kind: str, typed: str) -> str:
    from hansfree._internal.files import suggest_path

    path = Path(typed).expanduser()
    return f"{typed} is no {kind}." if path.exists() else f"There is no {kind} {typed}.{suggest_path(path)}"


def _read_mean_and_std(mean: str | None, std: str | None) -> list[tuple[float, ...] | None]:
    from hansfree.errors import OptionError

    found: list[tuple[float, ...]] = []
    for flag, given in (("--mean", mean), ("--std", std)):
        try:
            found.append(tuple(map(float, given.split(","))) if given else ())
        except ValueError:
            found.append((math.nan,))
        if not all(map(math.isfinite, found[-1])):  # no run file takes nan or inf
            raise OptionError(f"{flag} is {given!r}; expected numbers separated by commas, such as 0.5,0.5,0.5.")
    if len(found[0]) != len(found[1]) or len(found[0]) not in (0, 1, 3):
        raise OptionError("Give --mean and --std together: three numbers each, or one for grey images.")
    if min(found[1], default=1) <= 0:
        raise OptionError(f"--std is {std!r}; each number must be above 0.")
    return [numbers or None for numbers in found]
