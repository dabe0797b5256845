"""The first run file of a user: filled in as far as is known, with a comment for every key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from hansfree.errors import RunError
from hansfree.files import write_text
from hansfree.models import Preprocessing
from hansfree.runfile.schema import AUTO


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a user says about model, images and artifact; the rest has defaults."""

    source: str
    root: Path
    weights: str | None = None
    output: str = "classes"
    label: str | None = None
    layer: str = AUTO
    table: Path | None = None
    artifacts: Path | None = None
    classes: Sequence[str] | None = None
    biased_class: str | None = None
    insert: str | None = None
    file: Path | None = None
    out: Path = Path("hansfree-run")


def write_run_file(path: Path, answers: Answers, preprocessing: Preprocessing, *, force: bool = False) -> None:
    """Write a commented run file; one that is there already stays, unless ``force`` says otherwise."""
    if path.exists() and not force:
        raise RunError(f"{path} is there already. Choose another name, or give --force to write it anew.")
    environment = Environment(
        loader=PackageLoader("hansfree", "runfile"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    text = environment.get_template("run.yaml.jinja").render(
        {name: _quoted(value) for name, value in asdict(answers).items()},
        size=preprocessing.size,
        resize=preprocessing.resize,
        channels=preprocessing.channels,
        mean=list(preprocessing.mean),
        std=list(preprocessing.std),
    )
    write_text(path, text)


def _quoted(value: object) -> object:
    """Return a value as YAML writes it: a class called `no`, or a path with a colon, needs quotes."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_quoted(item) for item in value]
    return yaml.safe_dump(str(value), default_flow_style=True, width=10_000).removesuffix("...\n").strip()
