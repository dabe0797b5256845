"""Which keys make the same run."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from hansfree._internal.store import Run
from hansfree.errors import RunError
from hansfree.runfile.config import AUTO, ArtifactSection, CorrectionSection, DataSection, RunFile
from hansfree.studies import OwnImages

# What may change in a run that was begun: where it works, what things are called, and which stages it has. Where
# files lie is left out: images are known by name, size and time of change, weights by their numbers.
_CHANGES_NOTHING = {
    "out": True,
    "device": True,
    "workers": True,
    "model": {"weights"},
    "data": {
        name for name, key in DataSection.model_fields.items() if Path in (key.annotation, *get_args(key.annotation))
    },
    "artifact": {"name", "file", "also"},
    # strengths belong to methods (`check_tried`), and each of the repeats is a stage of its own
    "correction": {"methods", "further_cavs", "strengths", "repeats"},
}

UNCOUNTED = ("correction.strengths", "correction.repeats")

"""What earlier versions kept in a config, and what is not compared any more."""


# Left out of a config where they say nothing new, so that runs that were begun before the keys were there go on.
LATER_KEYS: dict[str, dict[str, Any]] = {
    "artifact": ArtifactSection().model_dump(mode="json", include={"remove", "keep"}),
    "correction": CorrectionSection().model_dump(mode="json", include={"rule", "balanced", "leading", "class_budgets"}),
}

"""By section, the keys that a config lacks where they have their default."""


def known_config(run: RunFile) -> dict[str, Any]:
    """Return what the file alone tells of a run's config; a layer that has to be found is not in it."""
    settings = run.model_dump(mode="json", exclude=_CHANGES_NOTHING)  # type: ignore[arg-type]
    # Where it lies tells nothing: the run compares the weights that it makes.
    places = run.model.source.split(":", 1)
    settings["model"]["source"] = ":".join(Path(place).name if os.path.isabs(place) else place for place in places)
    if run.model.layer == AUTO:
        del settings["model"]["layer"]
    for section, defaults in LATER_KEYS.items():
        for key in [key for key, value in defaults.items() if settings[section][key] == value]:
            del settings[section][key]
    return {"hansfree": version("hansfree"), **settings}


def check_tried(run: RunFile) -> None:
    """Refuse other strengths for a method that is done: its stage is kept, so nobody would try them."""
    folder = Run(run.out)
    for name in run.correction.trials:
        wanted = run.correction.strengths_of(name)
        if wanted and folder.has(name):
            tried = sorted({row["strength"] for row in folder.read(name)["rows"]})
            if tried != wanted:
                raise RunError(
                    f"{run.out} has {name} with other strengths: they were {tried}, are now {wanted}. Write the former "
                    "in correction.strengths, choose another folder, or delete this one to start anew."
                )


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
