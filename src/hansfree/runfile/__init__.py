"""Your own model and images: the run file, what it opens, and the run."""

from hansfree.runfile.changes import check_unchanged
from hansfree.runfile.checks import Asked, ask_model
from hansfree.runfile.config import RunFile, read_run_file
from hansfree.runfile.opening import DEFAULTS, Opened, open_run_file
from hansfree.runfile.running import Finished, carry_out
from hansfree.runfile.template import Answers, look_at, missing_paths, write_run_file

__all__ = [
    "DEFAULTS",
    "Answers",
    "Asked",
    "Finished",
    "Opened",
    "RunFile",
    "ask_model",
    "carry_out",
    "check_unchanged",
    "look_at",
    "missing_paths",
    "open_run_file",
    "read_run_file",
    "write_run_file",
]
