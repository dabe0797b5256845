"""``hansfree init``: questions, what the model shows, and the run file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import typer
import yaml

from hansfree.cli.terminal import console, fill_in

if TYPE_CHECKING:
    from torch import nn

    from hansfree.data.images import Resize
    from hansfree.models import Preprocessing

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
    resize: Resize | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    out: Path | None = None  # None: beside the file


@dataclass(frozen=True)
class ModelProbe:
    """What a forward pass showed: completed answers, preprocessing, and messages for the user."""

    answers: Answers
    preprocessing: Preprocessing
    sentences: tuple[str, ...]


def inspect_model(model: nn.Module, answers: Answers) -> ModelProbe:
    """Pass a blank image through the model to find its number of channels and of logits."""
    import torch

    from hansfree.errors import OptionError
    from hansfree.models import Preprocessing, find_logits, preprocessing_of
    from hansfree.pipeline.checks import DEFAULTS

    known = preprocessing_of(answers.source, model)
    given = _with_answers(known or DEFAULTS, answers)
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
        notes = ("The model returns one logit per image: output is set to binary.",) if is_single else ()
        return ModelProbe(replace(answers, output=output), prepared, () if answers.output else notes)
    note = f"Set size and channels of the images in the file. {problem}"
    return ModelProbe(replace(answers, output=answers.output or "classes"), given, (note,))


def _with_answers(known: Preprocessing, answers: Answers) -> Preprocessing:
    """Return the preprocessing with the user's answers in place of defaults."""
    mean, std = answers.mean or known.mean, answers.std or known.std
    return replace(
        known,
        size=answers.size or known.size,
        channels=len(mean) if answers.mean else known.channels,
        mean=mean,
        std=std,
        resize=answers.resize or known.resize,
    )


def missing_paths(answers: Answers) -> list[Path]:
    """Return the paths among the answers that do not exist on this machine."""
    given = (answers.root, answers.table, answers.artifacts, answers.file)
    return [path for path in given if path is not None and not path.expanduser().exists()]


def write_run_file(
    path: Path,
    answers: Answers,
    preprocessing: Preprocessing,
    *,
    every_key: bool = False,
    force: bool = False,
) -> None:
    """Write a run file.

    Args:
        every_key: Also list the keys that have defaults, as comments.
        force: Overwrite an existing file.
    """
    from hansfree._internal.files import open_templates, refuse_existing, write_text

    refuse_existing(path, force=force)
    templates = open_templates("cli", is_html=False)
    text = templates.get_template("run_all.yaml.jinja" if every_key else "run.yaml.jinja").render(
        {name: _quoted(value) for name, value in asdict(_beside(path, answers)).items()},
        **_choices(),
        scale=answers.scale,
        size=preprocessing.size,
        resize=preprocessing.resize,
        channels=preprocessing.channels,
        mean=list(preprocessing.mean),
        std=list(preprocessing.std),
    )
    write_text(path, text)


def _choices() -> dict[str, object]:
    """Return the registered names that the comments list."""
    from hansfree.cavs import CAV
    from hansfree.corrections import DeepCorrection, LatentCorrection, Need
    from hansfree.corrections.training import Optimizer
    from hansfree.data.artifacts import Artifact, Place
    from hansfree.pipeline.config import CorrectionSection

    methods, cavs = LatentCorrection.members(), CAV.members()
    return {
        "insertable": list(Artifact.for_images()),
        "places": get_args(Place),
        "methods": list(methods),
        "deep": list(DeepCorrection.members()),
        "need_masks": tuple(name for name, member in methods.items() if Need.MASKS in member.info.needs),
        "need_pairs": tuple(name for name, member in methods.items() if Need.PAIRS in member.info.needs),
        "cavs": list(cavs),
        "pair_cavs": [name for name in cavs if name not in CAV.from_marks()],
        "optimizers": get_args(Optimizer),
        "defaults": CorrectionSection(),
    }


def _beside(path: Path, answers: Answers) -> Answers:
    """Return the answers with paths relative to the file's folder instead of the working directory."""
    from hansfree.models.weights import PRETRAINED
    from hansfree.pipeline.config import move_source

    folder = path.absolute().parent

    def move(typed: str) -> str:
        if os.path.isabs(os.path.expanduser(typed)) or folder == Path.cwd():
            return typed
        try:
            return os.path.relpath(typed, folder)
        except ValueError:  # on Windows no path leads from one drive to another
            return os.path.abspath(typed)

    def moved(typed: Path | None) -> Path | None:
        return None if typed is None else Path(move(str(typed)))

    weights = answers.weights
    return replace(
        answers,
        source=move_source(answers.source, move),
        weights=weights if weights in (None, PRETRAINED) else move(str(weights)),
        root=Path(move(str(answers.root))),
        table=moved(answers.table),
        artifacts=moved(answers.artifacts),
        file=moved(answers.file),
        out=moved(answers.out) or Path("hansfree-run"),
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


Check = Callable[[str], str]
"""Return what is wrong with an answer, or an empty string."""


def ask(question: str, *, flag: str = "", default: str | None = None, check: Check = lambda _: "") -> str:
    """Ask until the answer is valid; without a terminal return the default, or raise and name the missing flag."""
    if not can_ask():
        if default is None:
            raise typer.BadParameter(f"{question}? stdin is not a terminal; pass {flag}.")
        return default
    while True:
        answer = str(typer.prompt(question, default=default, show_default=False))
        if not (wrong := check(answer)):
            return answer
        console.print(wrong, soft_wrap=True, highlight=False)


def ask_model_files(model: str | None, weights: str | None) -> tuple[str, str | None]:
    """Ask for the model and its weights; paths in flags are checked first."""
    from hansfree.errors import OptionError

    if wrong := no_source(model or "") or no_weights(weights or ""):
        raise OptionError(wrong)
    source = model or ask(
        "Where does the model come from (timm:NAME, file.py:function, ...)", flag="--model", check=no_source
    )
    weights = weights or ask("Its trained weights (empty: as the source makes it)", default="", check=no_weights)
    return os.path.expanduser(source), os.path.expanduser(weights) or None  # no shell expanded it


def ask_artifact(
    table: Path | None, artifacts: Path | None, insert: str | None, patch: Path | None
) -> tuple[Path | None, Path | None, str | None, Path | None]:
    """Ask how the artifact is given: by a table, by a list, or inserted."""
    if table is None and artifacts is None and insert is None:
        question = "CSV with the columns image, label, artifact (empty: the folders are the classes)"
        table = as_path(ask(question, default="", check=no_file))
        if table is None:
            question = "File that lists the images with the artifact (empty: none)"
            artifacts = as_path(ask(question, default="", check=no_file))
        if table is None and artifacts is None:
            question = fill_in("Artifact to insert into the images: {insertable}")
            insert = ask(question, flag="--insert", check=not_insertable)
    if insert == "patch" and patch is None:
        patch = Path(ask("Picture to paste, with a transparent background", flag="--patch", check=no_file))
    return table, artifacts, insert, patch


def no_folder(typed: str) -> str:
    """Return an error message if there is no such folder, with the nearest name."""
    return "" if Path(typed).expanduser().is_dir() else _not_there("folder", typed)


def no_file(typed: str) -> str:
    """Return an error message if a path was given and there is no such file, with the nearest name."""
    return "" if not typed or Path(typed).expanduser().is_file() else _not_there("file", typed)


def no_source(typed: str) -> str:
    """Return an error message if the Python file of a model's source does not exist."""
    home = typed.rpartition(":")[0]
    return no_file(home) if home.endswith(".py") else ""


def no_weights(typed: str) -> str:
    """Return an error message if a weights file does not exist."""
    wrong = no_file(typed)
    if not wrong:
        return ""

    from hansfree.models.weights import PRETRAINED  # only here: it takes seconds

    return "" if typed == PRETRAINED else wrong


def not_insertable(typed: str) -> str:
    """Return an error message if an artifact cannot be inserted, with those that can."""
    if not typed:
        return ""

    from hansfree.data.artifacts import Artifact
    from hansfree.errors import nearest

    known = Artifact.for_images()
    if typed in known:
        return ""
    return f"{typed} cannot be inserted into images.{nearest(typed, known)} Known: {', '.join(known)}."


def can_ask() -> bool:
    """Return whether stdin is a terminal."""
    return sys.stdin.isatty()


def as_path(given: str) -> Path | None:
    """Return a path, or None for an empty answer."""
    return Path(given) if given else None


def _not_there(kind: str, typed: str) -> str:
    from hansfree._internal.files import suggest_path

    path = Path(typed).expanduser()
    return f"{typed} is no {kind}." if path.exists() else f"There is no {kind} {typed}.{suggest_path(path)}"
