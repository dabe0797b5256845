"""Help texts name what is registered, and nothing heavy is loaded to define them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from hansfree.artifacts import Artifact
from hansfree.bench import Race
from hansfree.models import ARCHITECTURES
from tests.conftest import Call


@pytest.mark.parametrize(
    ("command", "family", "like"),
    [
        ("demo", Artifact._members, "plaster"),
        ("train", ARCHITECTURES, "resnet18"),
        ("reproduce", ARCHITECTURES, "resnet18"),
        ("init", Artifact._members, "lsb"),
        ("bench", Race._members, "step"),
    ],
)
def test_a_new_one_is_named_by_itself(
    command: str, family: Mapping[str, Any], like: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(family, "newcomer", family[like])  # type: ignore[arg-type]
    code, out, _ = call(command, "--help")
    assert code == 0
    assert re.search(rf"\b{like}\b.*\bnewcomer\b", " ".join(out.split()))
    assert "{" not in out


def test_what_cannot_be_put_on_a_picture_or_needs_a_file_is_not_offered(call: Call) -> None:
    assert "plaster" not in call("init", "--help")[1]
    assert "patch" not in call("demo", "--help")[1]


def test_the_list_of_commands_and_what_init_asks_need_nothing_heavy() -> None:
    code = (
        "import sys; from hansfree.cli.listing import fill_in; fill_in('{insertable}'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
