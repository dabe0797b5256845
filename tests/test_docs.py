"""Documents and code agree: examples run, printed commands parse, links and public names resolve."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torchvision.models import ResNet
from typer.main import get_command

import hansfree
from hansfree.cli import app

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hansfree"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *PAGES,
    *sorted((DOCS / "decisions").glob("*.md")),
]
RESULTS = sorted((ROOT / "results").rglob("*.md"))
MODULES = ["hansfree", *(module.name for module in pkgutil.walk_packages(hansfree.__path__, "hansfree."))]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", _read(path), re.DOTALL)


def test_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = _python_blocks(ROOT / "README.md")
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    model, fixed = names["model"], names["fixed"]
    assert isinstance(model, ResNet)
    assert type(fixed) is ResNet
    before, after = model.state_dict(), fixed.state_dict()
    assert list(before) == list(after)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"fc.weight", "fc.bias"}
    assert re.search(r"^flip_rate +\d\.\d{3} ± \d\.\d{3}  \(100 images\)$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("name", ["forgetting", "several", "monitor"])
def test_page_examples_run_as_one_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "monitor":  # uses the files of own-model.md
        pytest.importorskip("timm")
        names = runpy.run_path(str(DOCS / "examples" / "make_images.py"))
        names["write_images"].__globals__.update(NUMBER=800, EPOCHS=0)  # 99 clean validation images are needed
        torch.save(names["train"](*names["write_images"](tmp_path)).state_dict(), "model.pt")
    exec(compile("\n".join(_python_blocks(DOCS / f"{name}.md")), f"{name}.md", "exec"), {})


def test_example_of_own_classes_runs_and_is_printed_in_the_page() -> None:
    """It runs in a process of its own, because its classes register themselves."""
    file = DOCS / "examples" / "own_parts.py"
    parts = re.findall(r"^# \[start:(\w+)\]\n(.*?)\n+^# \[end:\1\]$", _read(file), re.DOTALL | re.MULTILINE)
    assert [block.rstrip("\n") for block in _python_blocks(DOCS / "extend.md")] == [text for _, text in parts]
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    found = re.findall(r"^\w+ +attracted (\S+), accuracy_clean \S+$", done.stdout, re.MULTILINE)
    assert float(found[1]) < float(found[0])


def _shell_commands(path: Path) -> Iterator[list[str]]:
    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", _read(path), re.DOTALL):
        for line in re.split(r"\n|&&", block.replace("\\\n", " ")):
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["hansfree"]:
                yield words[1:]


_COMMANDS = {path: found for path in [*DOCUMENTS, *RESULTS] if (found := list(_shell_commands(path)))}


@pytest.mark.parametrize("path", _COMMANDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_printed_commands_parse(path: Path) -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    for name, *options in _COMMANDS[path]:
        known[name].make_context(name, options)  # raises what a user would see


def test_command_line_page_lists_every_command() -> None:
    listed = re.findall(r"^\| `hansfree (\w+)", _read(DOCS / "cli.md"), re.MULTILINE)
    assert sorted(listed) == sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_resolve(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", _read(path)):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_layout_shows_every_package() -> None:
    (diagram,) = re.findall(r"```text\n(.*?)```", _read(ROOT / "CONTRIBUTING.md"), re.DOTALL)
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(re.findall(r"^(\w+) ", diagram, re.MULTILINE)) == sorted(found - {"__init__", "__main__"})


def test_functions_of_the_walk_exist() -> None:
    hops = re.findall(r"`([\w/]+\.py):([\w.]+)`", _read(ROOT / "CONTRIBUTING.md"))
    assert hops
    for file, function in hops:
        names: dict[str, ast.AST] = {}
        for node in ast.parse(_read(SOURCE / file)).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names |= {node.name: node, **{f"{node.name}.{getattr(part, 'name', '')}": part for part in node.body}}
        assert function in names, f"{file}:{function}"


@pytest.mark.parametrize("name", MODULES)
def test_doctests_pass(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
