"""Read a run file: YAML, checked key by key, with the nearest right answer for each that is wrong."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from hansfree.errors import OptionError, closest, nearest
from hansfree.runfile.schema import ModelSection, RunFile, Section
from hansfree.weights import PRETRAINED

_MERGE = "tag:yaml.org,2002:merge"  # of `<<`, which takes keys from elsewhere in the file
SectionT = TypeVar("SectionT", bound=Section)


def read_run_file(path: Path) -> RunFile:
    """Return what a run file says; its relative paths start at its own folder."""
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            make = f"To write a new one: hansfree init {shlex.quote(str(path))}"
            raise OptionError(f"There is no file {path}.{_like_it(path)} {make}") from error
        raise OptionError(f"{path} cannot be read ({error}).") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of month 13 is a ValueError of its own
        raise OptionError(f"{path} is not valid YAML: {_told(error, text)}") from error
    if not isinstance(content, dict):
        raise OptionError(f"{path} holds no run: keys and values are expected. `hansfree init` writes a first one.")
    try:
        found = RunFile.model_validate(content)
    except ValidationError as error:
        faults = [_sentence(fault) for fault in error.errors()]
        raise OptionError("\n  ".join([f"{path} cannot be used:", *faults])) from error
    return _anchored(found, path.parent.absolute())


def _like_it(path: Path) -> str:
    """Name the run file beside a missing one that is called alike; endings are alike anyway."""
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    names = {entry.stem: entry.name for entry in beside if entry.suffix in (".yaml", ".yml")}
    found = closest(path.stem, names)
    return "" if found is None else f" Did you mean {names[found]!r}?"


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice: YAML itself would take the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        written = [key for key, _ in node.value if key.tag != _MERGE]
        keys = [self.construct_object(key, deep=True) for key in written]
        if twice := [key for i, key in enumerate(keys) if key in keys[:i]]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _told(error: Exception, text: str) -> str:
    """Say what is wrong and where, with the line itself, as an editor would show it."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return " ".join(str(error).split()).replace('in "<unicode string>", ', "at ") + "."
    found = ", ".join(filter(None, (error.context, error.problem)))
    line = (text.splitlines() or [""])[min(mark.line, len(text.splitlines()) - 1)]
    return f"line {mark.line + 1}, column {mark.column + 1}: {found}.\n    {line}\n    {' ' * mark.column}^"


def _sentence(fault: Mapping[str, Any]) -> str:
    """Say what is wrong with one key."""
    place = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    kind, given = fault["type"], fault["input"]
    if kind == "missing":
        return f"{place} is missing."
    if kind == "extra_forbidden":
        *outer, key = fault["loc"]
        known = _keys(outer)
        return f"{place} is not known.{nearest(str(key), known)} Known: {', '.join(known)}."
    message = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    if kind == "value_error":
        return f"{place}: {message}." if place else f"{message}."
    if kind in ("path_type", "string_type"):
        message = "should be a path" if kind == "path_type" else "should be a text"
        message += "" if isinstance(given, (list, dict)) else ", which quotes make of it"
    hint = nearest(str(given), _words(fault)) if kind == "literal_error" else ""
    return f"{place} is {given!r:.80}: it {message}.{hint}"


def _words(fault: Mapping[str, Any]) -> list[str]:
    return [word.strip(" '") for word in str(fault["ctx"]["expected"]).replace(" or ", ",").split(",")]


def _keys(place: Sequence[str | int]) -> list[str]:
    """Return the keys that the section at a place has."""
    section: type[BaseModel] = RunFile
    for part in place:
        annotation: Any = section.model_fields[str(part)].annotation
        section = annotation
    return list(section.model_fields)


def _anchored(section: SectionT, folder: Path) -> SectionT:
    """Let relative paths start at the run file's folder, not at wherever the command was typed."""
    changed: dict[str, Any] = {}
    for name, value in section:
        if isinstance(value, Path):
            changed[name] = _in(folder, str(value))
        elif isinstance(value, Section):
            changed[name] = _anchored(value, folder)
    if isinstance(section, ModelSection):
        changed["source"] = move_source(section.source, lambda path: str(_in(folder, path)))
        if section.weights not in (None, PRETRAINED):
            changed["weights"] = str(_in(folder, str(section.weights)))
    return section.model_copy(update=changed)


def move_source(source: str, move: Callable[[str], str]) -> str:
    """Return a model's source with its path, where it has one, changed: of a Python file, or a folder of weights."""
    library, colon, name = source.partition(":")
    if library.endswith(".py"):
        return f"{move(library)}{colon}{name}"
    # a name on the hub looks like a path, too
    return f"{library}:{move(name)}" if library == "hf" and name and Path(move(name)).is_dir() else source


def _in(folder: Path, path: str) -> Path:
    return folder / os.path.expanduser(path)
