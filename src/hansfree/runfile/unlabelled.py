"""Open a run file whose images nobody has looked through yet: no artifact bit is needed, and none is read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from hansfree.datasets import Flagged, Normalize
from hansfree.datasets.image_files import ImageFiles, check_images
from hansfree.errors import DataError
from hansfree.models import Preprocessing
from hansfree.progress import Progress, silent
from hansfree.runfile.loading import first_logits, load_run_model, model_facts
from hansfree.runfile.schema import RunFile
from hansfree.studies import OwnImages
from hansfree.studies.classes import number_labels
from hansfree.studies.columns import PARTS, find_image, read_groups, read_rows, read_split
from hansfree.studies.folders import read_folders


@dataclass(frozen=True, eq=False, kw_only=True)
class Unlabelled:
    """A run file's model and all of its images, in the order of the table or of the folders' paths.

    Images that cannot be read are left out everywhere (``skipped``), so that all sequences go image by image.
    """

    run: RunFile
    model: nn.Module  # adapted: it gives one logit per class
    layer: str
    images: Flagged  # of all parts; its artifact bits are all False, for nobody knows them
    paths: Sequence[str]  # of the files
    names: Sequence[str]  # of the images, as the table calls them; below the root where folders are the list
    parts: Sequence[str] | None  # train, val or test; None where neither table nor folders tell
    rows: Sequence[Mapping[str, str]]  # what the table says, all columns; of folders image, label and where told split
    remarks: tuple[str, ...]
    skipped: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]  # what was found or chosen: a name and a sentence each


def looking_folder(run: RunFile) -> Path:
    """Return where suspects and marks are kept: beside the run's own folder, which has to be empty to begin with."""
    return run.out.with_name(f"{run.out.name}-label")


def open_unlabelled(run: RunFile, *, progress: Progress = silent) -> Unlabelled:
    """Load the model, read the list, check every picture and pass a first batch; raise what does not fit.

    What the run file says about the artifact is left alone: it is not known yet.
    """
    loaded = load_run_model(run)
    remarks: list[str] = []
    rows, paths, class_names, labels = _read_list(run, remarks)
    good, skipped = check_images(paths, skip_bad=run.data.skip_bad, option=OwnImages.skip_option, progress=progress)
    images = _flagged(loaded.preprocessing, [paths[row] for row in good], labels[good], class_names, good, len(paths))
    logits = first_logits(loaded.model, images)
    kept = [rows[row] for row in good]
    return Unlabelled(
        run=run,
        model=loaded.model,
        layer=loaded.layer,
        images=images,
        paths=[os.fspath(paths[row]) for row in good],
        names=[row["image"] for row in kept],
        parts=[row["split"] for row in kept] if "split" in rows[0] else None,
        rows=kept,
        remarks=tuple(remarks),
        skipped=tuple(skipped),
        facts=(
            *model_facts(run, loaded, logits),
            ("images", _counted(images)),
            *(("note", remark) for remark in remarks),
            *(("left out", sentence) for sentence in skipped),
        ),
    )


def _read_list(
    run: RunFile, remarks: list[str]
) -> tuple[list[dict[str, str]], Sequence[str | Path], tuple[str, ...], np.ndarray]:
    """Return rows, paths, class names and labels; the split, where it is told, is checked."""
    root, table = run.data.root, run.data.table
    if table is None:
        return _read_folders(run)
    filled = ("image",) if run.model.label is not None else ("image", "label")
    rows = read_rows(table, ("image", "label"), filled=filled)
    cells = [row["label"] for row in rows]
    names, labels = number_labels(cells, run.data.classes, label=run.model.label, place=table)
    read_split(rows, read_groups(rows, table=table, remarks=remarks), table=table)
    paths = [find_image(root, row["image"]) for row in rows]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise DataError(f"{table} lists {twice[0]} twice.")
    return rows, paths, names, labels


def _read_folders(run: RunFile) -> tuple[list[dict[str, str]], Sequence[str | Path], tuple[str, ...], np.ndarray]:
    root = run.data.root
    found = read_folders(root)
    names, labels = number_labels(found.labels, run.data.classes, also=found.names, place=root)
    rows = [{"image": os.path.relpath(path, root), "label": label} for path, label in zip(found.paths, found.labels)]
    for part, inside in zip(PARTS, found.parts or ()):
        for row in inside:
            rows[row]["split"] = part
    return rows, found.paths, names, labels


def _flagged(
    seen: Preprocessing,
    paths: Sequence[str | Path],
    labels: np.ndarray,
    class_names: tuple[str, ...],
    ids: np.ndarray,
    count: int,
) -> Flagged:
    source = ImageFiles(
        paths,
        labels,
        class_names=class_names,
        size=seen.size,
        ids=ids,
        id_range=range(count),
        resize=seen.resize,
        channels=1 if seen.channels == 1 else 3,
    )
    return Flagged(source, np.zeros(len(source), dtype=bool), transform=Normalize(seen.mean, seen.std))


def _counted(images: Flagged) -> str:
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    return f"{len(images)}: " + ", ".join(f"{count} {name}" for count, name in zip(counts, images.class_names))
