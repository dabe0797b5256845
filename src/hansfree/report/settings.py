"""A run's settings as a report shows them: a report is passed on, and its reader has another machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml


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
    return str(yaml.safe_dump(_without_folders(settings), sort_keys=False, allow_unicode=True))


def _without_folders(value: Any) -> Any:
    """Shorten full paths to their last name: folders can tell who somebody is, and the run's own file keeps them."""
    if isinstance(value, dict):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute():
                return f"…/{kind(value).name}"
    return value
