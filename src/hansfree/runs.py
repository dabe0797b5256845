"""A run folder: locked while in use, written atomically, resumed where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from hansfree.errors import RunError
from hansfree.files import write_json, write_text


@dataclass(frozen=True)
class Run:
    """An open run folder; each stage is done once and its result kept as JSON."""

    path: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def stage(self, name: str, work: Callable[[], Any]) -> Any:
        """Return the kept result of a stage, or do the work and keep it; what ``work`` returns must fit into JSON."""
        kept = self.path / "stages" / f"{name}.json"
        if not kept.exists():
            start = time.perf_counter()
            result = work()
            seconds = round(time.perf_counter() - start, 2)
            write_json(kept, {"seconds": seconds, "result": result})
            self._log(stage=name, seconds=seconds)
        content = json.loads(kept.read_text(encoding="utf-8"))
        self.seconds[name] = content["seconds"]
        return content["result"]

    def _log(self, **event: Any) -> None:
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S"), **event}) + "\n")


def check_run_folder(path: Path) -> None:
    """Refuse a place that no run can be opened in, a file or somebody's folder; nothing is written."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file, not a folder for a run.")
    kept = path / "config.yaml"
    if kept.exists():
        _read_config(kept)
    # Hidden files do not count: the lock, and what a kill leaves half written.
    elif path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise RunError(f"{path} is not empty and holds no run. Choose another folder.")


@contextmanager
def open_run(path: Path, config: Mapping[str, Any]) -> Iterator[Run]:
    """Open a run folder for writing; a folder that holds another run, or that is in use, is an error.

    Args:
        config: Everything that the results depend on, as plain values; kept as ``config.yaml``.
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
        _settle_config(path / "config.yaml", dict(config))
        yield Run(path)


def _read_config(kept: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(kept.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise RunError(f"{kept} is damaged. Delete the folder, or choose another one.")
    return content


def _settle_config(kept: Path, config: dict[str, Any]) -> None:
    text = yaml.safe_dump(config, sort_keys=False)
    if not kept.exists():
        write_text(kept, text)
        return
    before = _read_config(kept)
    config = yaml.safe_load(text)  # as it was kept: a tuple comes back as a list
    if not before.keys() & config.keys():
        raise RunError(f"{kept} is not of a hansfree run. Choose another folder.")
    changed = [key for key in {**before, **config} if before.get(key) != config.get(key)]
    if changed:
        differences = ", ".join(f"{key} was {before.get(key)!r}, is now {config.get(key)!r}" for key in changed)
        raise RunError(
            f"{kept.parent} holds another run ({differences}). Choose another folder, or delete this one to start anew."
        )
