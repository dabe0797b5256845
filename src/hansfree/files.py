"""Files that are either whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_UMASK = os.umask(0o022)  # it can only be read by setting it
os.umask(_UMASK)


@contextmanager
def written_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes the place of ``path`` when the block ends well, else it goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part{path.suffix}")
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_UMASK)  # safetensors writes files that nobody else may read
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_written_atomically(path: Path) -> Iterator[Path]:
    """Give a new temporary folder beside ``path``; it becomes ``path`` when the block ends well, else it goes.

    Where another process was first, its folder stays: what is written this way is named by its content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        try:
            os.replace(temporary, path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with written_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically, readable for people."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
