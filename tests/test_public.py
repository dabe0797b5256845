"""The public list is complete, quick to import, and the command line answers without torch."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

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


@pytest.mark.parametrize("name", hansfree.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    found = getattr(hansfree, name)
    home = importlib.import_module(f"hansfree.{hansfree._HOME_OF[name]}")
    assert found is getattr(home, name)
    assert found.__doc__
    assert found.__module__.startswith("hansfree.")


def test_the_list_is_sorted_unique_and_shown() -> None:
    assert hansfree.__all__ == sorted(set(hansfree.__all__))
    assert set(hansfree.__all__) <= set(dir(hansfree))
    names = [name for home in hansfree._HOMES.values() for name in home]
    assert len(names) == len(set(names))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hansfree' has no attribute 'SignalCaw'"):
        _ = hansfree.SignalCaw
    assert not hasattr(hansfree, "__wrapped__")  # inspection asks for such names


def test_members_of_the_families_are_public() -> None:
    from hansfree.cavs import CAV
    from hansfree.corrections import Correction
    from hansfree.data.artifacts import Artifact

    for family in (Artifact, CAV, Correction):
        own = [member for member in family.members().values() if member.__module__.startswith("hansfree.")]
        assert own
        for member in own:
            assert getattr(hansfree, member.__name__) is member


def test_every_error_is_of_the_tree() -> None:
    from hansfree import errors

    own = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert len(own) > 5
    for error in own:
        assert issubclass(error, HansfreeError)
        assert error is HansfreeError or len(error.__bases__) == 2  # and one that Python knows
        assert error.__name__ in (errors.__doc__ or "")


def test_import_loads_nothing_heavy() -> None:
    assert loaded_after("import hansfree\ndir(hansfree)") == ([], "")


def test_help_loads_nothing_heavy() -> None:
    program = (
        "sys.argv = ['hansfree', 'layers', '--help']\nfrom hansfree.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code"
    )
    loaded, printed = loaded_after(program)
    assert "Usage: hansfree" in printed
    assert loaded == []


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
