"""Help texts name what is registered, and nothing heavy is loaded to define or to show them."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from typer.main import get_command

from hansfree.cli import app
from hansfree.cli.terminal import ARTIFACTS, INSERTABLE, MODELS, TRAINED
from hansfree.data.artifacts import Artifact
from hansfree.models import ARCHITECTURES
from hansfree.pipeline.workspace import Trained
from tests.conftest import Call

COMMANDS = tuple(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_names_that_are_written_down_are_those_of_what_there_is() -> None:
    assert tuple(ARCHITECTURES) == MODELS
    assert get_args(Trained) == TRAINED
    assert tuple(Artifact.without_file()) == ARTIFACTS
    assert tuple(Artifact.for_images()) == INSERTABLE


@pytest.mark.parametrize(
    ("command", "names"),
    [("train", MODELS), ("train", TRAINED), ("reproduce", MODELS), ("demo", ARTIFACTS), ("init", INSERTABLE)],
)
def test_help_tells_the_names_that_are_written_down(command: str, names: tuple[str, ...], call: Call) -> None:
    code, out, _ = call(command, "--help")
    assert code == 0
    assert ", ".join(names) in " ".join(out.split())
    assert "{" not in out


def test_what_cannot_be_put_on_a_picture_or_needs_a_file_is_not_offered(call: Call) -> None:
    assert "plaster" not in call("init", "--help")[1]
    assert "patch" not in call("demo", "--help")[1]


def test_the_help_of_every_command_and_what_init_asks_need_nothing_heavy() -> None:
    code = f"""
import sys
from hansfree.cli import app
from hansfree.cli.terminal import fill_in

fill_in("{{insertable}}")
for command in {("", *COMMANDS)!r}:
    app([*filter(None, [command]), "--help"], standalone_mode=False)
print([name for name in ("torch", "sklearn", "scipy", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
