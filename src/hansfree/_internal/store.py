"""The run directory: locked, atomic, resumed."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from hansfree._internal.files import checksum, damaged, recorded_writes, remove_unfinished, write_json, write_text
from hansfree.errors import RunError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStore:
    """An open run directory; each stage is computed once, and its result stored as JSON.

    A stage also stores checksums of its result and of the files it wrote. Where one differs, it is computed again.
    """

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)
    watch: Callable[[str, float, Any], None] | None = None  # gets name, seconds and result of each finished stage

    def stage(self, name: str, work: Callable[[], Any]) -> Any:
        """Return the stored result of a stage, or compute and store it; ``work`` must return what JSON can hold."""
        if not self.has(name):
            start = time.perf_counter()
            with recorded_writes() as written:
                result = work()
            seconds = round(time.perf_counter() - start, 2)
            files = {path.relative_to(self.path).as_posix(): checksum(path) for path in written if self._is_own(path)}
            content = {"seconds": seconds, "result": result, "files": files}
            self._write(self._stage_path(name), {**content, "checksum": _checksum_of(content)})
            self.log(stage=name, seconds=seconds)
            log.info("%s: done in %.1f s", name, seconds)
            if self.watch is not None:
                self.watch(name, seconds, result)
        return self.read(name)

    def read(self, name: str) -> Any:
        """Return the stored result of a finished stage."""
        file = self._stage_path(name)
        content = _read_stage(file)
        if content is None:
            raise damaged(file)
        self.seconds[name] = content["seconds"]
        return content["result"]

    def has(self, name: str, *, forget: bool = True) -> bool:
        """Return whether a stage is finished, and its files are as it wrote them; else it is forgotten."""
        file = self._stage_path(name)
        if not file.exists():
            return False
        content = _read_stage(file)
        files = {} if content is None else content["files"]
        faults = [self.path / path for path, expected in files.items() if checksum(self.path / path) != expected]
        if content is not None and not faults:
            return True
        if forget:
            for path in faults or [file]:
                log.warning("%s is damaged or missing. The stage %r is computed again.", path, name)
            self.forget(name)
        return False

    def check_file(self, path: Path) -> None:
        """Raise RunError if a file of the directory is not as its stage wrote it; nothing is computed or forgotten."""
        name = path.relative_to(self.path).as_posix()
        for stage in sorted(self._stage_path("").parent.glob("[!.]*.json")):  # hidden ones are of a killed process
            content = _read_stage(stage)
            if content is None:
                raise damaged(stage)
            if content["files"].get(name, checksum(path)) != checksum(path):
                raise damaged(path, stage=stage)

    def _is_own(self, path: Path) -> bool:
        """Return whether a written file belongs to a stage: temporary files are gone, and caches check themselves."""
        own = path.exists() and path.is_relative_to(self.path) and path.suffix != ".json"
        return own and path.relative_to(self.path).parts[0] != "activations"

    def forget(self, name: str) -> None:
        """Delete the result of a stage whose input is computed again."""
        self._stage_path(name).unlink(missing_ok=True)

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        write_json(file, content)

    def _stage_path(self, name: str) -> Path:
        return self.path / "stages" / f"{name}.json"

    def check_weights(self, fingerprint: str, write: Callable[[], object] = lambda: None) -> None:
        """Raise RunError if the stages were computed with other weights; the same path does not prove the same file.

        Args:
            write: Writes the weights, which are stored with their fingerprint.
        """

        def work() -> str:
            write()
            return fingerprint

        if self.stage("weights", work) != fingerprint:
            raise RunError(
                f"{self.path} was computed with other weights. Choose another directory, or delete this one to start "
                "over."
            )

    def log(self, **event: Any) -> None:
        """Add a line to the run's log."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S"), **event}) + "\n")


def _read_stage(file: Path) -> dict[str, Any] | None:
    """Return the content of a stage's file, or None if it is damaged."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        is_whole = content.pop("checksum") == _checksum_of(content)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):  # no JSON, no object, or no text at all
        return None
    return content if is_whole else None


def _checksum_of(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, ensure_ascii=False).encode())


class JoinedRunStore(RunStore):
    """A run directory that another process has locked: stages are written here too, the log by that process alone."""

    def log(self, **event: Any) -> None:
        """Write nothing: lines that several machines append at once to a shared file may be lost."""

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        """Keep an existing result: a worker that was replaced may finish after its replacement."""
        if not file.exists():
            super()._write(file, content)


@contextmanager
def join_token(run: RunStore) -> Iterator[str]:
    """Let other processes join an open run in the block; yield a token, which names a hidden file in the directory."""
    token = secrets.token_hex(8)
    file = _token_file(run.path, token)
    file.touch()
    try:
        yield token
    finally:
        file.unlink(missing_ok=True)


def join_run(path: Path, token: str) -> RunStore:
    """Join a run that another process has locked, with the token of `join_token`; several processes can."""
    if not _token_file(path, token).exists():
        raise RunError(
            f"The run directory {path} is not the same here as where the run was started. Put it on a disk that all "
            "machines share under the same path."
        )
    return JoinedRunStore(path)


def _token_file(path: Path, token: str) -> Path:
    return path / f".joined-by-{token}"


def check_run_directory(path: Path, known: Mapping[str, Any] | None = None) -> None:
    """Raise RunError where no run can be opened: a file, a directory of other files, another run. Writes nothing.

    Args:
        known: The part of the config that is known already; the rest is left to `open_run`.
    """
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file, not a run directory.")
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise RunError(f"Cannot write {path}: {existing} is not writable. Choose another directory.")
    file = path / "config.yaml"
    if file.exists():
        before = _read_config(file)
        if known is not None:
            _check_same_run(path, before, known, only_known=True)
    # Hidden files do not count: the lock, and temporary files of a killed process.
    elif path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise RunError(f"{path} is not empty and holds no run. Choose another directory.")


@contextmanager
def open_run(
    path: Path, config: Mapping[str, Any], *, watch: Callable[[str, float, Any], None] | None = None
) -> Iterator[RunStore]:
    """Open a run directory for writing; one that holds another run, or that is in use, is an error.

    Args:
        config: Everything that the results depend on, as plain values; stored as ``config.yaml``.
        watch: See `RunStore`.
    """
    check_run_directory(path)
    lock = FileLock(path / ".lock", timeout=0)
    try:
        path.mkdir(parents=True, exist_ok=True)
        held = lock.acquire()
    except Timeout:
        raise RunError(f"{path} is in use by another process. Wait for it, or choose another directory.") from None
    except OSError as error:
        raise RunError(f"Cannot write {path} ({error.strerror}). Choose another directory.") from error
    with held:
        file = path / "config.yaml"
        if file.exists():
            before = _read_config(file)
            if not before.keys() & config.keys():
                raise RunError(f"{file} is not the config of a hansfree run. Choose another directory.")
            _check_same_run(path, before, config)
        else:
            write_text(file, yaml.safe_dump(dict(config), sort_keys=False))
        remove_unfinished(path)
        yield RunStore(path, watch=watch)


def _read_config(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise RunError(f"{file} is damaged. Delete the directory, or choose another one.")
    return content


def _check_same_run(
    path: Path, before: Mapping[str, Any], config: Mapping[str, Any], *, only_known: bool = False
) -> None:
    now = yaml.safe_load(yaml.safe_dump(dict(config)))  # as it is read back: a tuple becomes a list
    if changes := ", ".join(_differences(before, now, only_known=only_known)):
        raise another_run(path, changes)


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, only_known: bool, section: str = ""
) -> Iterator[str]:
    """Yield what changed, key by key; those of a section are written ``section.key``."""
    for key in now if only_known else {**before, **now}:
        old, new = before.get(key), now.get(key)
        if old and new and isinstance(old, dict) and isinstance(new, dict):
            # what is below a key of a section is compared whole
            yield from _differences(old, new, only_known=only_known and not section, section=f"{section}{key}.")
        elif old != new:
            yield f"{section}{key} was {old!r}, is now {new!r}"


def another_run(path: Path, changes: str) -> RunError:
    """Return the error for a directory that holds another run."""
    return RunError(
        f"{path} holds another run ({changes}). Choose another directory, or delete this one to start over."
    )
