"""What makes a run the same run: all keys of its file that results depend on."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from hansfree.runfile.schema import AUTO, CorrectionSection, DataSection, RunFile

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
    "correction": {"methods"},
}


def known_config(run: RunFile) -> dict[str, Any]:
    """Return what the file alone tells of a run's config; a layer that has to be found is not in it."""
    settings = run.model_dump(mode="json", exclude=_CHANGES_NOTHING)  # type: ignore[arg-type]
    # Where it lies tells nothing: the run compares the weights that it makes.
    places = run.model.source.split(":", 1)
    settings["model"]["source"] = ":".join(Path(place).name if os.path.isabs(place) else place for place in places)
    if run.model.layer == AUTO:
        del settings["model"]["layer"]
    for key in ("rule", "balanced"):  # runs that were begun before the key was there go on
        if getattr(run.correction, key) == getattr(CorrectionSection(), key):
            del settings["correction"][key]
    for key in ("remove", "keep"):  # so do these
        if not settings["artifact"][key]:
            del settings["artifact"][key]
    return {"hansfree": version("hansfree"), **settings}
