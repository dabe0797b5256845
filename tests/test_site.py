"""What the site says is true: its commands, keys, names and examples are the real ones. `make docs` builds it."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import typer
from pydantic_core import PydanticUndefined

import hansfree
from hansfree.artifacts import Place
from hansfree.cli import app
from hansfree.models import load_model
from hansfree.runfile.config import RunFile, Section

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def _keys(section: type[Section], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _keys(field.annotation, f"{before}{name}.")
        else:
            yield before + name, field.default


def _written(default: Any) -> str | None:
    """Return a default as the page has to write it; None where the page says it in words."""
    if default is PydanticUndefined:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if default and isinstance(default, tuple):
        return ", ".join(map(str, default))
    return f"{default:g}" if isinstance(default, (int, float)) else default if isinstance(default, str) else None


def test_the_page_explains_every_key_of_the_run_file_with_its_default() -> None:
    section = (DOCS / "own-model.md").read_text(encoding="utf-8").partition("## Every key of the run file")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in section.splitlines() if line.startswith("| `")]
    listed = {key.strip("`"): (default, words) for key, default, words in rows}
    known = dict(_keys(RunFile))
    assert sorted(listed) == sorted(known)
    for key, default in known.items():
        assert listed[key][1], key
        if (written := _written(default)) is not None:
            assert listed[key][0] == written, key


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(
        r"^::: hansfree(?:\.\w+)+\.(\w+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(hansfree.__all__)


def _commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for block in re.findall(r"```(?:sh|bash)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words and Path(words[0]).name == "hansfree":
                    yield page.name, words[1:]


@pytest.mark.parametrize(("page", "words"), list(_commands()))
def test_a_printed_command_is_one_that_exists(page: str, words: list[str]) -> None:
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def test_printed_outputs_are_in_the_pages_themselves() -> None:
    """Whoever reads the files as they are, without the site, sees them too."""
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    assert not [page for page in pages if "--8<--" in page or page.count("\n!!! ")]
    for file in sorted((DOCS / "examples").glob("*.txt")):
        block = "```text\n" + file.read_text(encoding="utf-8").rstrip("\n") + "\n```\n"
        assert sum(block in page for page in pages) == 1, file.name


def test_every_part_of_the_example_is_in_the_page_itself() -> None:
    example = (DOCS / "examples" / "own_parts.py").read_text(encoding="utf-8")
    parts = re.findall(r"^# \[start:(\w+)\]\n(.*?)\n+^# \[end:\1\]$", example, re.DOTALL | re.MULTILINE)
    page = (DOCS / "extend.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    assert shown == [text for _, text in parts]
    assert [name for name, _ in parts] == ["cav", "correction", "artifact", "metric", "dataset", "together"]


def test_every_place_of_a_patch_is_explained() -> None:
    page = (DOCS / "own-model.md").read_text(encoding="utf-8")
    explained = page.partition("`place` is one of:")[2].partition("\nChoose the place")[0]
    (row,) = (line for line in page.splitlines() if line.startswith("| `artifact.place`"))
    for place in get_args(Place):
        assert f"`{place}`" in explained
        assert f"`{place}`" in row


def test_the_example_of_own_parts_runs() -> None:
    """In a process of its own, for its classes would join the families of all other tests."""
    file = DOCS / "examples" / "own_parts.py"
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    shape = r"original +attracted (\S+), accuracy_clean \S+\nsteady +attracted (\S+), accuracy_clean \S+\n"
    printed = (DOCS / "examples" / "own-parts.txt").read_text(encoding="utf-8")
    for text in (done.stdout, printed):
        found = re.fullmatch(shape, text)
        assert found, text
        assert float(found[2]) < float(found[1])


def test_the_example_images_and_their_model_are_made(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    names = runpy.run_path(str(DOCS / "examples" / "make_images.py"))
    settings = names["write_images"].__globals__
    settings.update(NUMBER=32, SIZE=32, EPOCHS=1)
    model = names["train"](*names["write_images"](tmp_path))
    hansfree_model = load_model("timm:resnet10t", classes=4)
    hansfree_model.load_state_dict(model.state_dict(), strict=True)
    rows = (tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "image,label,artifact,split"
    assert {row.split(",")[2] for row in rows[1:]} == {"0", "1"}
    assert {row.split(",")[3] for row in rows[1:]} == {"train", "val", "test"}
    assert len(list((tmp_path / "images").iterdir())) == len(rows) - 1 == 32
    assert (tmp_path / "ruler.png").is_file()


@pytest.mark.parametrize("name", ["timm", "hansfree"])
def test_without_a_package_the_example_images_are_one_sentence_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(SystemExit) as told:
        runpy.run_path(str(DOCS / "examples" / "make_images.py"))
    assert str(told.value) == f"{name} is not installed. In your copy of the repository: pip install -e '.[timm]'"


def test_the_example_images_need_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(sys, "argv", ["make_images.py"])
    with pytest.raises(SystemExit, match=r"Usage: python docs/examples/make_images\.py FOLDER"):
        runpy.run_path(str(DOCS / "examples" / "make_images.py"), run_name="__main__")


@pytest.mark.parametrize("name", ["forgetting", "several", "monitor"])
def test_the_examples_of_a_page_are_one_program_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "monitor":  # which begins with the files that another page makes
        pytest.importorskip("timm")
        names = runpy.run_path(str(DOCS / "examples" / "make_images.py"))
        names["write_images"].__globals__.update(NUMBER=800, EPOCHS=0)  # 99 clean validation images are needed
        torch.save(names["train"](*names["write_images"](tmp_path)).state_dict(), "model.pt")
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), f"{name}.md", "exec"), {})
