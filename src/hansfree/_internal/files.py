"""Files that are written atomically, display paths, and templates."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from safetensors import SafetensorError

from hansfree.errors import RunError, nearest

log = logging.getLogger(__name__)
_UMASK = os.umask(0o022)  # it can only be read by setting it
os.umask(_UMASK)
_PROCESS = secrets.token_hex(4)  # processes on two machines that share a folder may have the same number


def make_array(path: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap[Any, Any]:
    """Return a new array on disk, with its disk space allocated.

    A memory map grows in the file only as it is filled: on a full disk that would kill the process, not raise.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    with path.open("r+b") as file:
        _allocate(file.fileno())
    return array


def temporary_memmap(folder: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap[Any, Any]:
    """Return a new array in a temporary file that goes away with the array, even when the process is killed."""
    with tempfile.TemporaryFile(dir=folder) as file:
        array = np.memmap(file, mode="w+", dtype=dtype, shape=shape)
        _allocate(file.fileno())
    return array


def _allocate(file: int) -> None:
    if hasattr(os, "posix_fallocate"):  # not on macOS and Windows
        os.posix_fallocate(file, 0, os.fstat(file).st_size)


_recorders: list[list[Path]] = []


@contextmanager
def recorded_writes() -> Iterator[list[Path]]:
    """Yield a list of the files that `written_atomically` writes in the block."""
    files: list[Path] = []
    _recorders.append(files)
    try:
        yield files
    finally:
        _recorders.pop()


@contextmanager
def written_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it replaces ``path`` when the block succeeds, and is deleted otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{_PROCESS}.part{path.suffix}")
    try:
        try:
            yield temporary
        except SafetensorError as error:  # which wraps the system's errors
            if found := re.search(r"\(os error (\d+)\)", str(error)):
                raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
            raise
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())  # some 10 ms: otherwise a loss of power could leave an empty file
        os.chmod(temporary, 0o666 & ~_UMASK)  # safetensors writes files that only the owner may read
        os.replace(temporary, path)
        for files in _recorders:
            files.append(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Delete unfinished files of killed processes; the caller holds the lock of the folder."""
    for left in [*folder.rglob(".*.part*")]:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


@contextmanager
def folder_written_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; it becomes ``path`` when the block succeeds, and is deleted otherwise.

    A folder that another process wrote first stays: such folders are named by their content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{_PROCESS}.part")
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


def read_arrays(path: Path, *, stage: Path | None = None) -> dict[str, np.ndarray]:
    """Return what an ``.npz`` file of a run folder holds; ``stage`` as for `damaged`."""
    with path.open("rb") as file:  # numpy leaves one open that it cannot read
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        # which one, depends on where the damage is
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise damaged(path, stage=stage) from error


def damaged(path: Path, *, stage: Path | None = None) -> RunError:
    """Return the error for a damaged file of a run folder.

    Args:
        stage: File to delete too, as a finished stage writes nothing.
    """
    what, them = ("it", "it") if stage is None else (f"it and {stage}", "both")
    return RunError(
        f"{path} is damaged. Delete {what}, and resume the run with the command that started it: it computes {them} "
        "again."
    )


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, which may be larger than memory."""
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(2**22):
            yield block


def write_checksums(path: Path, files: Iterable[Path]) -> None:
    """Write the checksums of files that lie beside ``path``, for `are_intact`."""
    write_json(path, {file.name: checksum(file) for file in files})


def are_intact(path: Path) -> bool:
    """Return whether the files listed by `write_checksums` are as they were written; each is read once per process."""
    if not path.exists():
        return False
    try:
        listed = json.loads(path.read_bytes()).items()
        damaged = [name for name, written in listed if checksum(path.with_name(name)) != written]
    except (AttributeError, ValueError):  # no JSON, or no object
        damaged = [path.name]
    for name in damaged:
        log.warning("%s is damaged or missing, and is computed again.", path.with_name(name))
    return not damaged


def checksum(file: Path) -> int | None:
    """Return the CRC-32 of a file, or None where it cannot be read; it is read once per process."""
    try:
        found = file.stat()
        return _crc32(file, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
    except OSError:
        return None


@cache
def _crc32(file: Path, state: tuple[int, ...]) -> int:  # the state changes with the content: it is part of the key
    return reduce(lambda checksum, block: zlib.crc32(block, checksum), _blocks(file), 0)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over a file, unless ``force`` says so."""
    if path.exists() and not force:
        raise RunError(f"{path} exists already. Choose another name, or pass --force to replace it.")


def suggest_path(path: Path) -> str:
    """Return ``" Did you mean 'x'?"`` for what lies beside a missing path under a similar name, or an empty string."""
    beside = [entry.name for entry in path.parent.iterdir() if entry != path] if path.parent.is_dir() else []
    return nearest(path.name, beside)


def display_path(path: Path) -> str:
    """Return a path as one would type it here: from the current folder, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def format_bytes(number: float) -> str:
    """Return a size in the unit that keeps it short, as ``8.19 KB``."""
    for unit in ("B", "KB", "MB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def ordered_metadata(file: bytes) -> bytes:
    """Return a safetensors file with its metadata in order: the library writes them in another one every time."""
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the numbers start at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + file[start:]


@cache
def open_templates(package: str, *, is_html: bool) -> Environment:
    """Return the templates of a package, with escaped values for HTML; an undefined name is an error."""
    return Environment(
        loader=PackageLoader("hansfree", package),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
