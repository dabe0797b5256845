"""Which settings and images make the same run, and what changed."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from hansfree._internal.files import read_arrays, written_atomically
from hansfree._internal.hashing import fingerprint
from hansfree._internal.store import RunStore, another_run, check_run_directory
from hansfree.data import SETS, UserImages
from hansfree.errors import RunError
from hansfree.pipeline.config import AUTO, DataSection, RunConfig

if TYPE_CHECKING:
    from hansfree.pipeline.checks import PreparedRun

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


def known_config(run: RunConfig) -> dict[str, Any]:
    """Return the part of a run's config that the run file gives; a layer to be found is not in it."""
    settings = run.model_dump(mode="json", exclude=_CHANGES_NOTHING)  # type: ignore[arg-type]
    # The path does not matter: the run compares the weights.
    places = run.model.source.split(":", 1)
    settings["model"]["source"] = ":".join(Path(place).name if os.path.isabs(place) else place for place in places)
    if run.model.layer == AUTO:
        del settings["model"]["layer"]
    return {"hansfree": version("hansfree"), **settings}


def check_tried(run: RunConfig) -> None:
    """Raise RunError for other strengths of a finished method: its stage is stored, so they would not be tried."""
    folder = RunStore(run.out)
    for name in run.correction.trials:
        wanted = run.correction.strengths_of(name)
        if wanted and folder.has(name, forget=False):
            tried = sorted({row["strength"] for row in folder.read(name)["rows"]})
            if tried != wanted:
                raise RunError(
                    f"{run.out} has {name} with other strengths: was {tried}, is now {wanted}. Restore them "
                    "in correction.strengths, choose another directory, or delete this one to start over."
                )


def unused_keys(run: RunConfig, images: UserImages) -> list[str]:
    """Return the full names of the keys that had no effect on this run."""
    is_converged = run.correction.optimizer == "converged"  # takes no steps
    is_unused = {
        "data.shares": not images.is_drawn,
        "artifact.column": not images.is_natural,
        "artifact.share": images.is_natural,
        **{f"artifact.{key}": run.artifact.insert != "patch" for key in ("file", "place", "scale", "angle")},
        **{f"correction.{key}": is_converged for key in ("learning_rate", "epochs", "batch_size")},
    }
    return [key for key, is_idle in is_unused.items() if is_idle]


_IMAGES = "images"  # key of the config, and name of the file that tells what changed


def run_config(prepared: PreparedRun) -> dict[str, Any]:
    """Return all that the results depend on: the run file, and a fingerprint of its images."""
    images = [getattr(prepared.setting.data, part).fingerprint for part in SETS]
    if prepared.images.is_annotated is not None:
        images.append(fingerprint(prepared.images.is_annotated))  # which artifact labels the diagnostics use
    for concept in (*prepared.setting.removed, *prepared.setting.protected):
        if concept.labels is not None:
            images.append(fingerprint(concept.rows, concept.labels))
    config = known_config(prepared.run)
    data = prepared.setting.data
    # As found, which another version might do differently.
    config["model"]["layer"] = prepared.setting.layer
    config["artifact"]["biased_class"] = data.train.class_names[data.biased_class]
    return {**config, _IMAGES: fingerprint(*images)}


def check_unchanged(prepared: PreparedRun) -> None:
    """Raise RunError if the directory holds another run, and say what differs; nothing is written."""
    out = prepared.run.out
    if not (out / "config.yaml").exists():
        return
    config = run_config(prepared)
    images = config.pop(_IMAGES)
    check_run_directory(out, config)
    try:
        check_run_directory(out, {_IMAGES: images})
    except RunError:  # hashes mean nothing to a reader
        raise another_run(out, _what_changed(prepared.images, _images_file(out))) from None


def keep_images(prepared: PreparedRun) -> None:
    """Store labels, artifact labels and splits in the run directory, to report later what changed."""
    with written_atomically(_images_file(prepared.run.out)) as temporary:
        np.savez_compressed(temporary, **_describe_images(prepared.images))  # type: ignore[arg-type]


def _images_file(out: Path) -> Path:
    return out / f"{_IMAGES}.npz"


def _describe_images(images: UserImages) -> dict[str, np.ndarray]:
    """Return row, class, artifact label (-1: none) and split of every image."""
    rows, bits = images.source.ids, images.artifact_labels
    splits = np.sum([number * np.isin(rows, part.ids) for number, part in enumerate(images.parts)], axis=0)
    return {
        "rows": rows,
        "labels": images.source.labels,
        "artifact labels": np.full(len(rows), -1) if bits is None else bits[rows].astype(int),
        "splits": splits,
    }


def _what_changed(images: UserImages, file: Path) -> str:
    now = _describe_images(images)
    try:
        before = read_arrays(file)
    except (FileNotFoundError, RunError):
        before = {}
    if before.keys() != now.keys():  # the file is missing or damaged
        return "the images changed: files, labels, artifact labels or splits"
    if not np.array_equal(before["rows"], now["rows"]):
        return f"the list of images changed: {len(before['rows'])} before, {len(now['rows'])} now"
    counts = {name: int((before[name] != now[name]).sum()) for name in ("labels", "artifact labels", "splits")}
    changes = [f"the {name} of {count} image{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    if changes:
        return f"{' and '.join(changes)} changed"
    return (
        "a file (name, size or modification time), the inserted artifact, or another column of artifact labels changed"
    )
