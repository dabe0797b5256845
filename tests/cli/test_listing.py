"""Help texts name what is registered, and nothing heavy is loaded to define or to show them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command

from hansfree.cli import app
from hansfree.cli.terminal import ARTIFACTS, INSERTABLE, MODELS
from hansfree.data.artifacts import Artifact
from hansfree.models import ARCHITECTURES
from tests.conftest import Call

COMMANDS = tuple(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_written_names_are_the_registered_ones() -> None:
    assert tuple(ARCHITECTURES) == MODELS
    assert tuple(Artifact.without_file()) == ARTIFACTS
    assert tuple(Artifact.for_images()) == INSERTABLE


@pytest.mark.parametrize(
    ("command", "names"), [("train", MODELS), ("reproduce", MODELS), ("demo", ARTIFACTS), ("init", INSERTABLE)]
)
def test_help_lists_the_names(command: str, names: tuple[str, ...], call: Call) -> None:
    code, out, _ = call(command, "--help")
    assert code == 0
    assert ", ".join(names) in " ".join(out.split())


def test_the_help_of_every_command_needs_nothing_heavy() -> None:
    code = f"""
import sys
from hansfree.cli import app

for command in {("", *COMMANDS)!r}:
    app([*filter(None, [command]), "--help"], standalone_mode=False)
print([name for name in ("torch", "sklearn", "scipy", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
