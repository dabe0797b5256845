"""What the documents say is true: examples run, names and rooms exist, the commands are the real ones."""

from __future__ import annotations

import ast
import doctest
import fnmatch
import importlib
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torchvision.models import ResNet
from typer.main import get_command

import hansfree
from hansfree.artifacts import Artifact
from hansfree.cavs import CAV
from hansfree.cli import app
from hansfree.corrections import Correction
from hansfree.corrections.deep import DeepCorrection
from hansfree.metrics import Metric
from hansfree.studies import Study

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hansfree"
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES, *DECISIONS]
RESULTS = sorted((ROOT / "results").rglob("*.md"))
MODULES = ["hansfree", *(module.name for module in pkgutil.walk_packages(hansfree.__path__, "hansfree."))]


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    model, fixed = names["model"], names["fixed"]
    assert isinstance(model, ResNet)
    assert type(fixed) is ResNet
    before, after = model.state_dict(), fixed.state_dict()
    assert list(before) == list(after)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"fc.weight", "fc.bias"}
    assert re.search(r"^flip_rate +\d\.\d{3} ± \d\.\d{3}  \(100 images\)$", capsys.readouterr().out, re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_readme_lists_every_registered_class() -> None:
    section = README.partition("## What is in it")[2].partition("\n## ")[0]
    rows = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))
    listed = set(re.findall(r"`([^`]+)`", rows)) | set(re.findall(r"`([a-z]+)`", section.partition("Artifacts:")[2]))
    known = {*Correction.members(), *DeepCorrection.members(), *CAV.members(), *Metric.members(), *Artifact.members()}
    assert {name for name in known if not any(fnmatch.fnmatch(name, pattern) for pattern in listed)} == set()
    assert {pattern for pattern in listed if not fnmatch.filter(known, pattern)} == set()


def test_the_readme_lists_every_command() -> None:
    section = README.partition("## The command line")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `hansfree (\w+)", section, re.MULTILINE)
    assert sorted(listed) == sorted(
        command.callback.__name__ for command in app.registered_commands if command.callback
    )


def _shell_commands(path: Path) -> Iterator[list[str]]:
    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
        for line in re.split(r"\n|&&", block.replace("\\\n", " ")):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["hansfree"]:
                yield words[1:]


_TYPED = {path: found for path in [*DOCUMENTS, *RESULTS] if (found := list(_shell_commands(path)))}


@pytest.mark.parametrize("path", _TYPED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_of_documents_and_results_can_still_be_typed(path: Path) -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    for name, *options in _TYPED[path]:
        known[name].make_context(name, options)  # raises what a user would read


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_records_have_their_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {path.stem[:4]}: ")
    places = [text.find(f"**{part}.**") for part in ("Context", "Decision", "Consequence")]
    assert -1 not in places
    assert places == sorted(places)


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(path.stem[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def _rooms() -> list[str]:
    (block,) = re.findall(r"```text\n(.*?)```", CONTRIBUTING, re.DOTALL)
    return [line.split()[0] for line in block.splitlines()]


def test_the_map_shows_every_room() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(_rooms()) == sorted(found - {"__init__", "__main__"})


@pytest.mark.parametrize("room", _rooms())
def test_a_room_imports_only_from_rooms_above_it(room: str) -> None:
    allowed = {*_rooms()[: _rooms().index(room)], room}
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
    assert files
    for path in files:
        used = set(_imported_rooms(ast.parse(path.read_text(encoding="utf-8"))))
        assert used <= allowed, f"{path.name} imports {', '.join(sorted(used - allowed))}"


def _imported_rooms(tree: ast.AST) -> Iterator[str]:
    """Yield the rooms that are imported when the code runs; what only the type checker reads does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "hansfree":
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hansfree."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("hansfree."))
        yield from _imported_rooms(node)


_EVERYDAY_WORDS = {"synthetic", "table"}  # that a longer text may hold


@pytest.mark.parametrize("study", Study.members().values(), ids=lambda study: study.name)
def test_no_datasets_name_appears_outside_its_own_file(study: type[Study]) -> None:
    """Nothing may depend on which dataset it is: what differs, the dataset's own class says."""
    (home,) = (path for path in SOURCE.rglob("*.py") if _module(path) == study.__module__)
    exports = SOURCE / "studies" / "__init__.py"
    names = {study.__name__, home.stem} - {"table"}  # a name that variables may have, too
    for path in sorted(SOURCE.rglob("*.py")):
        if path in (home, exports):
            continue
        place = path.relative_to(SOURCE).as_posix()
        identifiers, texts = _words_of(path)
        assert not names & identifiers, place
        assert study.name not in texts, place
        if study.name not in _EVERYDAY_WORDS:
            assert not [text for text in texts if study.name in text], place


@cache
def _words_of(path: Path) -> tuple[set[str], set[str]]:
    """Return the identifiers and texts of a file, which is parsed once for all datasets."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return set(_identifiers(tree)), set(_texts(tree))


_OF_THE_PAPER = [study for study in Study.members().values() if study.published is not None]


@pytest.mark.parametrize("study", _OF_THE_PAPER, ids=lambda study: study.name)
def test_no_dataset_of_the_paper_is_spoken_of_outside_its_own_file(study: type[Study]) -> None:
    """Nor in docstrings and comments: what they say of one dataset belongs in its own."""
    exports = SOURCE / "studies" / "__init__.py"
    for path in sorted(SOURCE.rglob("*.py")):
        if _module(path) == study.__module__ or path == exports:
            continue
        text = path.read_text(encoding="utf-8").replace("ImageNet weights", "")  # those of torchvision
        for name in (study.title, study.__name__):
            assert name not in text, path.relative_to(SOURCE).as_posix()


def _module(path: Path) -> str:
    return ".".join(("hansfree", *path.relative_to(SOURCE).with_suffix("").parts))


def _identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield all texts but docstrings, which may tell where a choice comes from."""
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            docstrings.add(id(node.body[0].value))  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_ci_runs_what_the_readme_tells() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make lint", "make docs", "make test"} <= set(script.read_text(encoding="utf-8").splitlines())


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_sets_up_once_and_again_when_the_dependencies_change(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()

    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # set when `make test` runs this test
    env = {name: value for name, value in os.environ.items() if name not in outer}

    def steps(*words: str) -> str:
        command = ["make", "-n", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, env=env).stdout

    fresh = steps("demo", "ARGS=--artifact lsb")
    assert "-m venv" in fresh
    assert "pip --disable-pip-version-check install -e '.'" in fresh
    assert fresh.splitlines()[-1].endswith("hansfree demo --artifact lsb")
    assert "install -e '.[dev]'" in steps("test")
    assert "install -e '.[docs]'" in steps("docs")
    for stamp in (".installed", ".installed-dev"):
        (tmp_path / ".venv" / stamp).touch()
    assert steps("demo").split() == [".venv/bin/hansfree", "demo"]
    assert ".venv/bin/python -m pytest" in steps("test")
    assert "install" not in steps("test")
    later = (tmp_path / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(tmp_path / "pyproject.toml", (later, later))
    assert "install" in steps("demo")
