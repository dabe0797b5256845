"""The questions of ``hansfree init``: a path that leads nowhere is told at once, and asked for again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from hansfree.cli.listing import fill_in
from hansfree.cli.terminal import console

Check = Callable[[str], str]
"""Return what is wrong with an answer; an empty text where nothing is."""


def ask(question: str, *, flag: str = "", default: str | None = None, check: Check = lambda _: "") -> str:
    """Ask until the answer is right; where nobody can answer, take the default, or say which flag was missing."""
    if not can_ask():
        if default is None:
            raise typer.BadParameter(f"{question}? Give {flag}, as nobody can be asked here.")
        return default
    while True:
        answer = str(typer.prompt(question, default=default, show_default=False))
        if not (wrong := check(answer)):
            return answer
        console.print(wrong, soft_wrap=True, highlight=False)


def ask_model_files(model: str | None, weights: str | None) -> tuple[str, str | None]:
    """Ask for the model and its weights; refuse flags that lead nowhere before anything else is asked."""
    from hansfree.errors import OptionError

    if wrong := no_source(model or "") or no_weights(weights or ""):
        raise OptionError(wrong)
    source = model or ask(
        "Where does the model come from (timm:NAME, file.py:function, ...)", flag="--model", check=no_source
    )
    weights = weights or ask("Its trained weights (empty: as the source makes it)", default="", check=no_weights)
    return os.path.expanduser(source), os.path.expanduser(weights) or None  # no shell did it for a typed answer


def ask_artifact(
    table: Path | None, artifacts: Path | None, insert: str | None, patch: Path | None
) -> tuple[Path | None, Path | None, str | None, Path | None]:
    """Ask what tells the artifact, one question after the other until one is answered."""
    if table is None and artifacts is None and insert is None:
        question = "CSV with the columns image, label, artifact (empty: the folders are the classes)"
        table = as_path(ask(question, default="", check=no_file))
        if table is None:
            question = "File that lists the images with the artifact (empty: none)"
            artifacts = as_path(ask(question, default="", check=no_file))
        if table is None and artifacts is None:
            question = fill_in("Artifact to put into the images: {insertable}")
            insert = ask(question, flag="--insert", check=not_insertable)
    if insert == "patch" and patch is None:
        patch = Path(ask("Picture to paste, with a transparent background", flag="--patch", check=no_file))
    return table, artifacts, insert, patch


def no_folder(typed: str) -> str:
    """Say that there is no such folder, and what lies there under a similar name."""
    return "" if Path(typed).expanduser().is_dir() else _not_there("folder", typed)


def no_file(typed: str) -> str:
    """Say that there is no such file, and what lies there under a similar name; nothing was typed: all is well."""
    return "" if not typed or Path(typed).expanduser().is_file() else _not_there("file", typed)


def no_source(typed: str) -> str:
    """Say that the Python file of a model's source is not there; whom else it comes from is found out later."""
    home = typed.rpartition(":")[0]
    return no_file(home) if home.endswith(".py") else ""


def no_weights(typed: str) -> str:
    """Say that a file of weights is not there."""
    wrong = no_file(typed)
    if not wrong:
        return ""

    from hansfree.weights import PRETRAINED  # only here: it takes seconds

    return "" if typed == PRETRAINED else wrong


def not_insertable(typed: str) -> str:
    """Say that an artifact cannot be put into images, and which can."""
    if not typed:
        return ""

    from hansfree.artifacts import Artifact
    from hansfree.errors import nearest

    known = Artifact.for_pictures()
    if typed in known:
        return ""
    return f"{typed} cannot be put into images.{nearest(typed, known)} Known: {', '.join(known)}."


def can_ask() -> bool:
    """Tell whether somebody sits at the terminal."""
    return sys.stdin.isatty()


def as_path(given: str) -> Path | None:
    """Return what was typed as a path; None where nothing was."""
    return Path(given) if given else None


def _not_there(kind: str, typed: str) -> str:
    from hansfree._internal.files import neighbour

    path = Path(typed).expanduser()
    return f"{typed} is no {kind}." if path.exists() else f"There is no {kind} {typed}.{neighbour(path)}"
