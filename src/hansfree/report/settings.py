"""A run's settings as a report shows them: a report is passed on, and its reader has another machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml

# What may stand before a path, as hf:FOLDER or --out=FOLDER; a single letter is a drive, and what follows // a host.
_BEFORE_PATH = re.compile(r"[\w-]{2,}[:=](?!//)")


def shown_settings(run: Path, unused: Sequence[str]) -> str:
    """Return the run's settings, without keys that it had no use for, and without the folders that paths lie in.

    Args:
        unused: keys as ``section.key``.
    """
    path = next((run / name for name in ("run.yaml", "config.yaml") if (run / name).is_file()), None)
    settings = None if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
    if not settings:
        return ""
    for section, _, key in (name.partition(".") for name in unused):
        settings.get(section, {}).pop(key, None)
    return str(yaml.safe_dump(_shortened(settings), sort_keys=False, allow_unicode=True))


def shown_command(command: str) -> str:
    """Return the command that made the run, without the folders that paths lie in."""
    return shlex.join(map(without_folders, shlex.split(command)))


def without_folders(text: str, *, mark: str = "") -> str:
    """Return a text that is a full path, or ends in one, with the path's last name only: folders can name people.

    Args:
        mark: stands for the folders.
    """
    found = _BEFORE_PATH.match(text)
    start = found[0] if found else ""
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(text[len(start) :])
        if path.is_absolute():
            return f"{start}{mark}{path.name}"
    return text


def _shortened(value: Any) -> Any:
    """Shorten all paths in it; the run's own file keeps them."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return without_folders(value, mark="…/") if isinstance(value, str) else value
