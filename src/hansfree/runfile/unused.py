"""Keys of a run file that changed nothing: a report that listed them would say what was not done."""

from __future__ import annotations

from hansfree.runfile.schema import RunFile
from hansfree.studies import OwnImages

_OF_A_PATCH = ("artifact.file", "artifact.place", "artifact.scale", "artifact.angle")
_OF_STEPS = ("correction.learning_rate", "correction.epochs", "correction.batch_size")  # a solved head takes none


def unused_keys(run: RunFile, images: OwnImages) -> list[str]:
    """Return the keys that this run had no use for, by their full names."""
    is_unused = {
        "data.shares": not images.is_drawn,
        "artifact.column": not images.is_natural,
        "artifact.share": images.is_natural,
        **dict.fromkeys(_OF_A_PATCH, run.artifact.insert != "patch"),
        **dict.fromkeys(_OF_STEPS, run.correction.optimizer == "converged"),
    }
    return [key for key, is_idle in is_unused.items() if is_idle]
