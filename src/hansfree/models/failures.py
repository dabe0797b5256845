"""What other people's code did not like, in one sentence."""

from __future__ import annotations

import traceback
from pathlib import Path


def sentence_of(error: BaseException, *, file: Path | None = None) -> str:
    """Return the kind of an error and its first line; with ``file``, also the line there that raised it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    where = ""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        said, where = f"{type(error).__name__}: {error.msg}", f" (line {error.lineno})"
    elif file is not None:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == file]
        where = f" (line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return f"{said.rstrip('.')}{where}."
