"""The first run file of a user: filled in as far as is known, with a comment for every key."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

import torch
import yaml
from torch import nn

from hansfree._internal.files import open_templates, refuse_existing, write_text
from hansfree.artifacts import Artifact, Place
from hansfree.cavs import CAV
from hansfree.corrections import Correction
from hansfree.corrections.training import Optimizer
from hansfree.datasets.images import Resize
from hansfree.errors import OptionError
from hansfree.models import Preprocessing, find_logits, preprocessing_of
from hansfree.runfile.config import AUTO, CorrectionSection, move_source
from hansfree.runfile.opening import DEFAULTS
from hansfree.weights import PRETRAINED

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*(:\w[\w.-]*)?", re.ASCII)  # timm:resnet18 and file.py:build too


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a user says about model, images and artifact; the rest has defaults."""

    source: str
    root: Path
    weights: str | None = None
    output: str | None = None  # None: what the model shows
    label: str | None = None
    layer: str = AUTO
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
class SeenModel:
    """What the model itself shows: the answers with it, how images are prepared, and what was found out."""

    answers: Answers
    preprocessing: Preprocessing
    sentences: tuple[str, ...]


def look_at(model: nn.Module, answers: Answers) -> SeenModel:
    """Run a blank image through the model, to see how many channels it takes and whether it returns one logit."""
    told = preprocessing_of(answers.source, model)
    seen = _as_told(told or DEFAULTS, answers)
    # A library knows its models, and a user says it with the means; of another, colours are tried first.
    grey = Preprocessing(size=seen.size, channels=1, mean=(0.5,), std=(0.5,), resize=seen.resize)
    problem = None
    for prepared in (seen,) if told or answers.mean else (seen, grey):
        try:
            logits = find_logits(model, torch.zeros(2, prepared.channels, prepared.size, prepared.size))
        except OptionError as error:
            problem = problem or str(error)
            continue
        is_single = logits.ndim == 1 or logits.shape[1] == 1
        output = answers.output or ("binary" if is_single else "classes")
        notes = ("The model returns one number per image: output is set to binary.",) if is_single else ()
        return SeenModel(replace(answers, output=output), prepared, () if answers.output else notes)
    doubt = f"The size and the channels of the images have to be set in the file. {problem}"
    return SeenModel(replace(answers, output=answers.output or "classes"), seen, (doubt,))


def _as_told(known: Preprocessing, answers: Answers) -> Preprocessing:
    """Return how images are prepared: as the user says, else as is known."""
    mean, std = answers.mean or known.mean, answers.std or known.std
    return Preprocessing(
        size=answers.size or known.size,
        channels=len(mean) if answers.mean else known.channels,
        mean=mean,
        std=std,
        resize=answers.resize or known.resize,
    )


def missing_paths(answers: Answers) -> list[Path]:
    """Return what the answers name and this machine does not have; it may be that of another one."""
    given = (answers.root, answers.table, answers.artifacts, answers.file)
    return [path for path in given if path is not None and not path.expanduser().exists()]


def write_run_file(path: Path, answers: Answers, preprocessing: Preprocessing, *, force: bool = False) -> None:
    """Write a commented run file; one that is there already stays, unless ``force`` says otherwise."""
    refuse_existing(path, force=force)
    templates = open_templates("runfile", is_html=False)
    text = templates.get_template("run.yaml.jinja").render(
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
    """Return the names that the comments list: what is registered, so that a new class is named by itself."""
    methods, cavs = Correction.members(), CAV.members()
    return {
        "insertable": list(Artifact.for_pictures()),
        "places": get_args(Place),
        "methods": list(methods),
        "need_masks": tuple(name for name, member in methods.items() if member.uses_masks),
        "need_pairs": tuple(name for name, member in methods.items() if member.uses_pairs),
        "cavs": list(cavs),
        "pair_cavs": [name for name in cavs if name not in CAV.from_marks()],
        "optimizers": get_args(Optimizer),
        "defaults": CorrectionSection(),
    }


def _beside(path: Path, answers: Answers) -> Answers:
    """Return the answers with paths from the file's folder on; they were typed as seen from the working folder."""
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
