"""The reference pages are complete, and the example files of the guides can be made."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from pydantic_core import PydanticUndefined

import hansfree
from hansfree.data.artifacts import Place
from hansfree.models import load_model
from hansfree.pipeline.config import RunConfig, Section

DOCS = Path(__file__).parent.parent / "docs"
MAKE_IMAGES = str(DOCS / "examples" / "make_images.py")


def _read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


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
    lines = [line for line in _read("run-file.md").splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines]
    listed = {key.strip("`"): (default, text) for key, default, text in rows}
    known = dict(_keys(RunConfig))
    assert sorted(listed) == sorted(known)
    for key, default in known.items():
        assert listed[key][1], key
        if (printed := _printed(default)) is not None:
            assert listed[key][0] == printed, key


def test_every_position_of_a_patch_is_listed() -> None:
    (row,) = (line for line in _read("run-file.md").splitlines() if line.startswith("| `artifact.place`"))
    for place in get_args(Place):
        assert f"`{place}`" in row
        assert f"`{place}`" in _read("insert.md")


def test_reference_has_every_public_name() -> None:
    pytest.importorskip("mkdocs")
    assert "<!-- public names -->" in _read("reference.md")
    listed = runpy.run_path(str(DOCS / "hooks.py"))["list_public_names"]()
    names = {name for name in hansfree.__all__ if not isinstance(getattr(hansfree, name), ModuleType)}
    found = re.findall(r"^::: hansfree(?:\.\w+)+\.(\w+)$", listed, re.MULTILINE)
    assert names | {*hansfree.extend.__all__} <= {*found}
    assert len(found) == len({*found})


def test_example_images_and_their_model_are_made(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    names = runpy.run_path(MAKE_IMAGES)
    names["write_images"].__globals__.update(NUMBER=32, SIZE=32, EPOCHS=1)
    model = names["train"](*names["write_images"](tmp_path))
    load_model("timm:resnet10t", classes=4).load_state_dict(model.state_dict(), strict=True)
    rows = (tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "image,label,artifact,split"
    assert {row.split(",")[2] for row in rows[1:]} == {"0", "1"}
    assert {row.split(",")[3] for row in rows[1:]} == {"train", "val", "test"}
    assert len(list((tmp_path / "images").iterdir())) == len(rows) - 1 == 32
    assert (tmp_path / "ruler.png").is_file()


def test_example_images_without_a_package_or_directory_give_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "timm", None)  # as if it were not installed
        with pytest.raises(SystemExit, match=r"^timm is not installed.*pip install -e '\.\[timm\]'"):
            runpy.run_path(MAKE_IMAGES)
    pytest.importorskip("timm")
    monkeypatch.setattr(sys, "argv", ["make_images.py"])
    with pytest.raises(SystemExit, match=r"Usage: python docs/examples/make_images\.py FOLDER"):
        runpy.run_path(MAKE_IMAGES, run_name="__main__")
