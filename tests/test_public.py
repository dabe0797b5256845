"""The public list is complete, quick to import, and the command line answers without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import hansfree
from hansfree.errors import HansfreeError

HEAVY = ("torch", "torchvision", "sklearn", "scipy", "matplotlib", "numpy", "zennit")


def loaded_after(program: str) -> tuple[list[str], str]:
    """Run a program in a new process; return which heavy packages it imported, and what it printed."""
    code = f"import json, sys\n{program}\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *printed, last = done.stdout.splitlines()
    return json.loads(last), "\n".join(printed)


NAMES = [name for name in hansfree.__all__ if not isinstance(getattr(hansfree, name), ModuleType)]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_runnable_example(name: str) -> None:
    found = getattr(hansfree, name)
    assert found.__name__ == name
    assert found.__module__.startswith("hansfree.")
    own = [found.__doc__, *(getattr(part, "__doc__", None) for part in vars(found).values())]
    assert any(">>> " in (text or "") for text in own), f"{name}: tests/test_docs.py would run it"


def test_all_that_is_subclassed_or_raised_is_in_one_place() -> None:
    from hansfree import errors, extend

    trees = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert {error.__name__ for error in trees} <= set(extend.__all__)
    page = (Path(__file__).parent.parent / "docs" / "extend.md").read_text(encoding="utf-8")
    assert not [name for name in extend.__all__ if f"`{name}`" not in page], "docs/extend.md lists them"


def test_the_list_is_sorted_unique_and_shown() -> None:
    assert hansfree.__all__ == sorted(set(hansfree.__all__))
    assert set(hansfree.__all__) <= set(dir(hansfree))


def test_every_error_is_of_the_tree() -> None:
    from hansfree import errors

    own = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert len(own) > 5
    for error in own:
        assert issubclass(error, HansfreeError)
        assert error is HansfreeError or len(error.__bases__) == 2  # and one that Python knows


def test_import_loads_nothing_heavy() -> None:
    assert loaded_after("import hansfree\ndir(hansfree)") == ([], "")


def test_init_asks_before_it_loads_anything_heavy() -> None:
    program = (
        "sys.argv = ['hansfree', 'init', '/nowhere/my.yaml', '--model', 'demo']\nfrom hansfree.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 2, end.code"
    )
    loaded, _ = loaded_after(program)  # it ends with the question for --root, as stdin is no terminal
    assert set(loaded) <= {"numpy"}


def test_a_run_file_is_read_without_torchvision() -> None:
    loaded, _ = loaded_after("import hansfree.api")  # zennit brings it along, and makes every command wait for it
    assert "zennit" not in loaded
    assert "torchvision" not in loaded
