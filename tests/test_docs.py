"""What the documents say is true: examples run, names and packages exist, the commands are the real ones."""

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


def _packages() -> list[str]:
    (block,) = re.findall(r"```text\n(.*?)```", CONTRIBUTING, re.DOTALL)
    return [line.split()[0] for line in block.splitlines()]


def test_the_map_shows_every_package() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(_packages()) == sorted(found - {"__init__", "__main__"})


@pytest.mark.parametrize("package", _packages())
def test_a_package_imports_only_from_packages_above_it(package: str) -> None:
    allowed = {*_packages()[: _packages().index(package)], package}
    files = (
        [SOURCE / f"{package}.py"] if (SOURCE / f"{package}.py").exists() else sorted((SOURCE / package).rglob("*.py"))
    )
    assert files
    for path in files:
        used = set(_imported_packages(ast.parse(path.read_text(encoding="utf-8"))))
        assert used <= allowed, f"{path.name} imports {', '.join(sorted(used - allowed))}"


def _imported_packages(tree: ast.AST) -> Iterator[str]:
    """Yield the packages that are imported when the code runs; what only the type checker reads does not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "hansfree":
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hansfree."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("hansfree."))
        yield from _imported_packages(node)


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
