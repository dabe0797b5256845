"""What is said when something goes wrong, and how the process ends."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

_FAULT = 70  # EX_SOFTWARE of sysexits.h
_GOES_ON = "the same command goes on from where it stopped"


class Failure(NamedTuple):
    """A sentence for the user, and the exit code."""

    sentence: str
    code: int


def failure_of(error: Exception) -> Failure:
    """Return what to say of an error; of one that nobody foresaw, the traceback is kept in a file."""
    from hansfree.activations.loading import WORKER_DIED, is_worker_death
    from hansfree.errors import HansfreeError

    if isinstance(error, HansfreeError):
        return Failure(str(error), error.exit_code)
    if isinstance(error, OSError) and error.errno is not None:
        return Failure(_system(error), 1)
    if is_memory(error):
        return Failure("The memory is full. Use smaller images, a smaller batch_size, or a machine with more of it.", 1)
    if is_worker_death(error):
        return Failure(WORKER_DIED, 1)
    said = (str(error).strip().splitlines() or [""])[0]
    return Failure(
        f"hansfree failed in a way that nobody foresaw ({type(error).__name__}: {said}). Please report it with "
        f"{keep_traceback(error)}, which holds the details.",
        _FAULT,
    )


def is_memory(error: Exception) -> bool:
    """Tell whether memory ran out: Python, the CPU's and the GPU's allocators say it in three ways."""
    kinds = [kind.__name__ for kind in type(error).__mro__]  # by name, as torch need not be there yet
    return "MemoryError" in kinds or "OutOfMemoryError" in kinds or "can't allocate memory" in str(error)


def _system(error: OSError) -> str:
    reason = error.strerror or str(error)
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{reason}{where}. Make room; {_GOES_ON}."
    return f"{reason}{where}."


def keep_traceback(error: BaseException) -> Path:
    """Write the traceback into a file here, or where that is not allowed in the system's temporary folder."""
    name = f"hansfree-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    command = " ".join(sys.argv)
    text = f"{command}\nPython {sys.version}\n\n" + "".join(traceback.format_exception(error))
    here, elsewhere = Path(name), Path(tempfile.gettempdir()) / name
    try:
        here.write_text(text, encoding="utf-8")
    except OSError:
        elsewhere.write_text(text, encoding="utf-8")
        return elsewhere
    return here.absolute()
