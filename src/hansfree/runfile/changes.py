"""Whether a folder holds the same run, once its images are known; what changed in them is told in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hansfree._internal.files import read_arrays, written_atomically
from hansfree._internal.hashing import fingerprint
from hansfree._internal.store import check_run_folder
from hansfree.errors import RunError
from hansfree.runfile.identity import LATER_KEYS, UNCOUNTED, known_config
from hansfree.runfile.opening import Opened
from hansfree.studies import SETS, OwnImages

_IMAGES = "images"  # the key of the config, and the name of the file that can tell what changed
_COMPARED = ("labels", "marks", "parts")
_UNKNOWN = -1  # for a mark that nothing tells


def run_config(opened: Opened) -> dict[str, Any]:
    """Return everything that the results depend on: the run file, and which images it leads to."""
    images = [getattr(opened.setting.data, part).fingerprint for part in SETS]
    if opened.images.is_marked is not None:
        images.append(fingerprint(opened.images.is_marked))  # which of the bits the doctor goes by
    for concept in (*opened.setting.removed, *opened.setting.protected):
        if isinstance(concept.told_by, np.ndarray):
            images.append(fingerprint(concept.rows, concept.told_by))
    config = known_config(opened.run)
    config["model"]["layer"] = opened.setting.layer  # where it was found, which another version might do elsewhere
    return {**config, _IMAGES: fingerprint(*images)}


def meant_by(opened: Opened) -> dict[str, dict[str, Any]]:
    """Return what a key means that a config lacks or leaves open, by section: a biased class is then found."""
    found = opened.setting.data.train.class_names[opened.images.likely_class]
    return {**LATER_KEYS, "artifact": {**LATER_KEYS["artifact"], "biased_class": found}}


def check_unchanged(opened: Opened) -> None:
    """Refuse a folder that holds another run, and say what differs; nothing is written."""
    out = opened.run.out
    if (out / "config.yaml").exists():
        check_run_folder(
            out,
            run_config(opened),
            is_whole=True,
            defaults=meant_by(opened),
            uncounted=UNCOUNTED,
            told=changes_of(opened),
        )


def changes_of(opened: Opened) -> dict[str, str]:
    """Return what to say where the images differ from those of the run folder: hashes tell nobody anything."""
    return {_IMAGES: _what_changed(opened.images, _kept(opened.run.out))}


def keep_images(opened: Opened) -> None:
    """Keep labels, marks and parts in the run folder, so that it can be told later what changed."""
    with written_atomically(_kept(opened.run.out)) as temporary:
        np.savez_compressed(temporary, **_described(opened.images))  # type: ignore[arg-type]


def _kept(out: Path) -> Path:
    return out / f"{_IMAGES}.npz"


def _described(images: OwnImages) -> dict[str, np.ndarray]:
    """Return the row of every image, its class, its mark and its part."""
    rows, marks = images.source.ids, images.marks
    parts = np.sum([number * np.isin(rows, part.ids) for number, part in enumerate(images.parts)], axis=0)
    return {
        "rows": rows,
        "labels": images.source.labels,
        "marks": np.full(len(rows), _UNKNOWN) if marks is None else marks[rows].astype(int),
        "parts": parts,
    }


def _what_changed(images: OwnImages, kept: Path) -> str:
    """Say in words what is not as in a run folder, where the images are not."""
    try:
        before, now = read_arrays(kept), _described(images)
    except (FileNotFoundError, RunError):  # of an earlier version, or damaged: it only helps to tell
        return "the images changed: their files, labels, marks or parts"
    if not np.array_equal(before["rows"], now["rows"]):
        return f"the list of images changed: {len(before['rows'])} before, {len(now['rows'])} now"
    counts = {name: int((before[name] != now[name]).sum()) for name in _COMPARED}
    told = [f"the {name} of {count} image{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    if told:
        return f"{' and '.join(told)} changed"
    return "a file (its name, size or time of change), what is put into images, or another column of marks changed"
