"""Your own model and images: the run file, what it opens, and the run."""

from hansfree.runfile.changes import check_unchanged
from hansfree.runfile.loading import DEFAULTS
from hansfree.runfile.opening import Opened, open_run_file
from hansfree.runfile.ordering import Asked, ask_model
from hansfree.runfile.reading import read_run_file
from hansfree.runfile.running import Finished, carry_out
from hansfree.runfile.schema import RunFile
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
