"""The run directory: locked, atomic, resumed."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from filelock import FileLock, Timeout

from hansfree._internal.files import damaged, write_json, write_text
from hansfree.errors import RunError


@dataclass(frozen=True)
class Run:
    """An open run folder; each stage is done once and its result kept as JSON."""

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def stage(self, name: str, work: Callable[[], Any]) -> Any:
        """Return the kept result of a stage, or do the work and keep it; what ``work`` returns must fit into JSON."""
        kept = self._stage_path(name)
        if not self.has(name):
            start = time.perf_counter()
            result = work()
            seconds = round(time.perf_counter() - start, 2)
            self._keep(kept, {"seconds": seconds, "result": result})
            self.log(stage=name, seconds=seconds)
        return self.read(name)

    def read(self, name: str) -> Any:
        """Return the kept result of a stage that is done."""
        content = _read_stage(self._stage_path(name))
        self.seconds[name] = content["seconds"]
        return content["result"]

    def has(self, name: str) -> bool:
        """Say whether a stage is done."""
        return self._stage_path(name).exists()

    def forget(self, name: str) -> None:
        """Drop what a stage kept, where it follows from one that is made anew."""
        self._stage_path(name).unlink(missing_ok=True)

    def _keep(self, kept: Path, content: dict[str, Any]) -> None:
        write_json(kept, content)

    def _stage_path(self, name: str) -> Path:
        return self.path / "stages" / f"{name}.json"

    def check_weights(self, fingerprint: str) -> None:
        """Refuse stages that were made with other weights: a path that is the same does not tell."""
        if self.stage("weights", lambda: fingerprint) != fingerprint:
            raise RunError(
                f"{self.path} was made with other weights. Choose another folder, or delete this one to start anew."
            )

    def log(self, **event: Any) -> None:
        """Add a line to the run's log."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S"), **event}) + "\n")


class JoinedRun(Run):
    """A run folder that another process holds open: it keeps stages, and leaves the log to who holds the lock."""

    def log(self, **event: Any) -> None:
        """Write nothing: lines that several machines append at once to a shared file may be lost."""

    def _keep(self, kept: Path, content: dict[str, Any]) -> None:
        """Leave a result that is there: a worker that was given up may end after its successor."""
        if not kept.exists():
            super()._keep(kept, content)


@contextmanager
def invited(run: Run) -> Iterator[str]:
    """Let other processes join an open run for the length of the block; give the word that they join with.

    The word is the name of a hidden file in the folder, so whoever finds it sees the same folder.
    """
    word = secrets.token_hex(8)
    file = _invitation(run.path, word)
    file.touch()
    try:
        yield word
    finally:
        file.unlink(missing_ok=True)


def join_run(path: Path, word: str) -> Run:
    """Join a run that another process holds open, without its lock; several may, as each stage is written atomically.

    Args:
        word: What `invited` gave; where the folder does not hold it, it is another folder under the same path.
    """
    if not _invitation(path, word).exists():
        raise RunError(
            f"The folder of the run, {path}, is not the same here as where the run was started. Put it on a disk that "
            "all machines share under the same path."
        )
    return JoinedRun(path)


def _invitation(path: Path, word: str) -> Path:
    return path / f".invited-{word}"


Defaults = Mapping[str, Mapping[str, Any]]

"""By section, what a key means that a config does not have, or leaves open."""


def check_run_folder(
    path: Path,
    known: Mapping[str, Any] | None = None,
    *,
    is_whole: bool = False,
    defaults: Defaults = MappingProxyType({}),
    uncounted: Collection[str] = (),
    told: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a place that no run can be opened in: a file, somebody's folder, another run; nothing is written.

    Args:
        known: The part of the config that is known already, so that another run is told before any work. Keys that
            it lacks are left to `open_run`.
        is_whole: ``known`` is all of the config, and what it lacks differs too.
        defaults: Of keys that either config may lack.
        uncounted: Keys that are not compared; see `open_run`.
        told: By key, what to say if it differs, where the values tell nobody anything.
    """
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file, not a folder for a run.")
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise RunError(f"{path} cannot be written: {there} allows no new file. Choose another folder.")
    kept = path / "config.yaml"
    if kept.exists():
        before = _read_config(kept)
        if known is not None:
            now = _filled(_as_kept(known), defaults)
            differences = _differences(
                _filled(before, defaults), now, only_known=not is_whole, uncounted=uncounted, told=told
            )
            _refuse(path, differences)
    # Hidden files do not count: the lock, and what a kill leaves half written.
    elif path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise RunError(f"{path} is not empty and holds no run. Choose another folder.")


@contextmanager
def open_run(
    path: Path,
    config: Mapping[str, Any],
    *,
    defaults: Defaults = MappingProxyType({}),
    uncounted: Collection[str] = (),
    told: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Run]:
    """Open a run folder for writing; a folder that holds another run, or that is in use, is an error.

    Args:
        config: Everything that the results depend on, as plain values; kept as ``config.yaml``.
        defaults: Of keys that this config, or the kept one, may lack.
        uncounted: Keys, as ``section.key``, that a kept config may have and that do not matter any more.
        told: By key, what to say if it differs; see `check_run_folder`.
    """
    check_run_folder(path)
    lock = FileLock(path / ".lock", timeout=0)
    try:
        path.mkdir(parents=True, exist_ok=True)
        held = lock.acquire()
    except Timeout:
        raise RunError(f"{path} is in use by another process. Wait for it, or choose another folder.") from None
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}). Choose another folder.") from error
    with held:
        _settle_config(path / "config.yaml", dict(config), defaults, uncounted, told)
        yield Run(path)


def _read_stage(kept: Path) -> dict[str, Any]:
    try:
        content = json.loads(kept.read_text(encoding="utf-8"))
    except ValueError:  # no JSON, or no text at all
        content = None
    if not isinstance(content, dict) or not {"seconds", "result"} <= content.keys():
        raise damaged(kept)
    return content


def _read_config(kept: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(kept.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise RunError(f"{kept} is damaged. Delete the folder, or choose another one.")
    return content


def _settle_config(
    kept: Path, config: dict[str, Any], defaults: Defaults, uncounted: Collection[str], told: Mapping[str, str]
) -> None:
    if not kept.exists():
        write_text(kept, yaml.safe_dump(config, sort_keys=False))
        return
    before = _read_config(kept)
    config = _as_kept(config)
    if not before.keys() & config.keys():
        raise RunError(f"{kept} is not of a hansfree run. Choose another folder.")
    now = _filled(config, defaults)
    _refuse(kept.parent, _differences(_filled(before, defaults), now, uncounted=uncounted, told=told))


def _as_kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as it is read back: a tuple becomes a list."""
    content: dict[str, Any] = yaml.safe_load(yaml.safe_dump(dict(config)))
    return content


def _filled(config: Mapping[str, Any], defaults: Defaults) -> dict[str, Any]:
    """Return a config with the keys that its sections lack or leave open; what has no default stays as it is."""
    filled = dict(config)
    for name, meant in defaults.items():
        if isinstance(section := config.get(name), dict):
            said = {key: value for key, value in section.items() if value is not None or key not in meant}
            filled[name] = {**meant, **said}
    return filled


def _differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    only_known: bool = False,
    uncounted: Collection[str] = (),
    told: Mapping[str, str] = MappingProxyType({}),
    place: str = "",
) -> Iterator[str]:
    """Yield what changed, key by key; those of a section are written ``section.key``."""
    for key in {**before, **now}:
        if (only_known and key not in now) or f"{place}{key}" in uncounted:
            continue
        old, new = before.get(key), now.get(key)
        if old and new and isinstance(old, dict) and isinstance(new, dict):
            inner = f"{place}{key}."
            yield from _differences(old, new, only_known=only_known, uncounted=uncounted, told=told, place=inner)
        elif old != new:
            yield told.get(f"{place}{key}") or f"{place}{key} was {old!r}, is now {new!r}"


def _refuse(folder: Path, differences: Iterator[str]) -> None:
    if told := ", ".join(differences):
        raise RunError(f"{folder} holds another run ({told}). Choose another folder, or delete this one to start anew.")
