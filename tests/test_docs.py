"""Documents and code agree: examples run, printed commands parse, links and public names resolve."""

from __future__ import annotations

import ast
import csv
import doctest
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
import torch
from pydantic_core import PydanticUndefined
from torchvision.models import ResNet
from typer.main import get_command

import hansfree
from hansfree.cli import app
from hansfree.pipeline.config import RunConfig, Section
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.runner import Reproduction

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hansfree"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *PAGES,
    *sorted((DOCS / "decisions").glob("*.md")),
    *sorted((DOCS / "datasets").glob("*.md")),
]
RESULTS = sorted((ROOT / "results").rglob("*.md"))
MODULES = ["hansfree", *(module.name for module in pkgutil.walk_packages(hansfree.__path__, "hansfree."))]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", _read(path), re.DOTALL)


def test_readme_example_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = _python_blocks(ROOT / "README.md")
    assert len([line for line in example.splitlines() if line and not line.startswith((" ", ")", "#"))]) <= 10
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    model, fixed = names["model"], names["fixed"]
    assert isinstance(model, torch.nn.Module)
    assert type(fixed) is type(model)
    assert [*model.state_dict()] == [*fixed.state_dict()]
    assert re.match(r"^(Partly c|C)orrected.*: on 525 test images the timestamp artifact", capsys.readouterr().out)
    assert (tmp_path / "report.html").is_file()


def test_example_step_by_step_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = _python_blocks(DOCS / "how-it-works.md")
    names: dict[str, object] = {}
    exec(compile(example, "how-it-works.md", "exec"), names)
    model, fixed = names["model"], names["fixed"]
    assert isinstance(model, ResNet)
    assert type(fixed) is ResNet
    before, after = model.state_dict(), fixed.state_dict()
    assert list(before) == list(after)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"fc.weight", "fc.bias"}
    assert re.search(r"^flip_rate +\d\.\d{3} ± \d\.\d{3}  \(100 images\)$", capsys.readouterr().out, re.MULTILINE)


UNTYPED = {"whole-network.md"}  # a list comprehension leaves out candidates without a model, which narrows no type
TYPED = {path: blocks for path in (ROOT / "README.md", *PAGES) if (blocks := _python_blocks(path))}


PACKAGES = (
    "activations",
    "cavs",
    "corrections",
    "data",
    "evaluation",
    "export",
    "metrics",
    "models",
    "pipeline",
    "report",
)


def test_examples_are_typed(tmp_path: Path) -> None:
    """mypy in strict mode on the code of README and pages, a program each, and on imports of what packages export."""
    pages = {path: blocks for path, blocks in TYPED.items() if path.name not in UNTYPED}
    assert len(pages) >= 6
    for path, blocks in pages.items():
        (tmp_path / f"page_{path.stem.replace('-', '_')}.py").write_text("\n".join(blocks))
    for package in PACKAGES:
        exported = [name for name, thing in vars(getattr(hansfree, package)).items() if not inspect.ismodule(thing)]
        names = ", ".join(name for name in exported if not name.startswith("_"))
        (tmp_path / f"names_{package}.py").write_text(f"from hansfree.{package} import {names}\n")
    settings = tmp_path / "mypy.ini"  # what has no types is not ours: timm, torchvision
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\nignore_missing_imports = True\n")
    files = map(str, sorted(tmp_path.glob("*.py")))
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout


SCRIPT = DOCS / "examples" / "typed.py"


def test_every_type_is_known_to_an_editor() -> None:
    """pyright in strict mode on a script of 25 and more public names: no Any and nothing unknown."""
    pyright = Path(sys.executable).with_name("pyright")
    if not pyright.is_file():
        pytest.skip("pyright is not installed")
    used = {*re.findall(r"\bhf\.(\w+)", _read(SCRIPT))}
    assert len(used) >= 25
    settings = {"typeCheckingMode": "strict", "include": [SCRIPT.name], "extraPaths": [str(ROOT / "src")]}
    with TemporaryDirectory() as folder:  # paths of a project are relative to it
        shutil.copy(SCRIPT, folder)
        (Path(folder) / "pyrightconfig.json").write_text(json.dumps(settings))
        command = [str(pyright), "--project", folder, "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        pytest.skip("pyright cannot be fetched")  # its wheel downloads the program on first use
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    assert [each["message"] for each in found["generalDiagnostics"]] == []


@pytest.mark.parametrize("name", ["forgetting", "several", "monitor"])
def test_page_examples_run_as_one_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "monitor":  # uses the files of own-model.md
        pytest.importorskip("timm")
        names = runpy.run_path(str(DOCS / "examples" / "make_images.py"))
        names["write_images"].__globals__.update(NUMBER=800, EPOCHS=0)  # 99 clean validation images are needed
        torch.save(names["train"](*names["write_images"](tmp_path)).state_dict(), "model.pt")
    exec(compile("\n".join(_python_blocks(DOCS / f"{name}.md")), f"{name}.md", "exec"), {})


def test_example_of_own_classes_runs_and_all_of_it_is_in_the_page() -> None:
    """It runs in a process of its own, because its classes register themselves."""
    file = DOCS / "examples" / "own_parts.py"
    sections = re.findall(r"^# --8<-- \[start:(\w+)\]$", _read(file), re.MULTILINE)
    assert re.findall(r"^--8<-- \"own_parts\.py:(\w+)\"$", _read(DOCS / "extend.md"), re.MULTILINE) == sections
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


def test_every_item_of_the_paper_has_code_and_a_command() -> None:
    with (DOCS / "paper-items.csv").open(encoding="utf-8", newline="") as file:
        items = list(csv.DictReader(file))
    assert len({item["item"] for item in items}) == len(items)
    experiments, datasets = {*Reproduction.members()}, {*BenchmarkDataset.members()}
    known = get_command(app).commands  # type: ignore[attr-defined]
    for item in items:
        assert (ROOT / item["file"]).is_file(), item
        program, *words = shlex.split(item["command"])
        if program == "hansfree":
            known[words[0]].make_context(words[0], words[1:])
        else:
            assert importlib.util.find_spec(words[words.index("-m") + 1]), item
        assert bool(item["departure"]) == (item["status"] != "exact" or bool(item["unless"])), item
        assert {*item["experiments"].split()} <= experiments, item
        assert {*item["data"].split()} <= datasets, item
        assert not item["record"] or list((DOCS / "decisions").glob(f"{item['record']}-*.md")), item
    counts = Counter(item["status"] for item in items)
    exact, others, missing = (counts[status] for status in ("exact", "departure", "missing"))
    stated = f"Of {len(items)} items of the paper {exact} are exact, {others} depart from it and {missing} are missing"
    assert stated in " ".join(_read(DOCS / "reproduce.md").split())


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
    with torch.random.fork_rng():
        torch.manual_seed(0)  # examples build untrained models
        assert doctest.testmod(importlib.import_module(name)).failed == 0


def _keys(section: type[Section], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _keys(field.annotation, f"{before}{name}.")
        else:
            yield before + name, field.default


def _printed(default: Any) -> str | None:
    """Return a default as the page prints it; None where the page describes it."""
    if default is PydanticUndefined:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if default and isinstance(default, tuple):
        return ", ".join(map(str, default))
    return f"{default:g}" if isinstance(default, (int, float)) else default if isinstance(default, str) else None


def test_run_file_page_has_every_key_with_its_default() -> None:
    lines = [line for line in _read(DOCS / "run-file.md").splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines]
    listed = {key.strip("`"): (default, text) for key, default, text in rows}
    known = dict(_keys(RunConfig))
    assert sorted(listed) == sorted(known)
    for key, default in known.items():
        assert listed[key][1], key
        if (printed := _printed(default)) is not None:
            assert listed[key][0] == printed, key


def test_reference_has_every_public_name() -> None:
    pytest.importorskip("mkdocs")
    assert "<!-- public names -->" in _read(DOCS / "reference.md")
    listed = runpy.run_path(str(DOCS / "hooks.py"))["list_public_names"]()
    names = {name for name in hansfree.__all__ if not isinstance(getattr(hansfree, name), ModuleType)}
    found = re.findall(r"^::: hansfree(?:\.\w+)+\.(\w+)$", listed, re.MULTILINE)
    assert names | {*hansfree.extend.__all__} <= {*found}
    assert len(found) == len({*found})
