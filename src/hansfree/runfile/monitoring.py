"""A monitor from a finished run: its direction, its held-out images, and new pictures read as the model sees them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hansfree.datasets.image_files import ImageFiles, check_images
from hansfree.errors import DataError, RunError
from hansfree.experiments.material import Material
from hansfree.files import neighbour
from hansfree.monitor import Monitor
from hansfree.progress import Progress, silent
from hansfree.runfile.changes import check_unchanged
from hansfree.runfile.opening import Opened, open_run_file
from hansfree.runfile.reading import read_run_file
from hansfree.runfile.running import kept_weights
from hansfree.runs import Run
from hansfree.studies.folders import list_pictures

_BATCH = 64
_FILE = "monitor.safetensors"


@dataclass(frozen=True, eq=False)
class RunMonitor:
    """A run's monitor, kept in its folder for `Monitor.load` too."""

    monitor: Monitor
    opened: Opened
    file: Path

    def look_at(
        self, images: Sequence[Path], *, skip_bad: bool = False, progress: Progress = silent
    ) -> tuple[list[SeenImage], list[str]]:
        """Return what the monitor says of pictures, and a sentence for each that cannot be read.

        Args:
            images: Files, and folders that are searched for some.
            skip_bad: Go on without pictures that cannot be read; otherwise the first is an error.
        """
        paths = _list_images(images)
        good, skipped = check_images(paths, skip_bad=skip_bad, progress=progress)
        known = self.opened.images
        files = ImageFiles(
            [paths[row] for row in good],
            np.zeros(len(good), dtype=np.int64),
            class_names=("unknown",),
            size=known.size,
            resize=known.resize,
            channels=known.channels,
        )
        looked: list[SeenImage] = []
        starts = range(0, len(files), _BATCH)
        for start in progress(starts, total=len(starts), label="looking at the images"):
            rows = range(start, min(start + _BATCH, len(files)))
            scores = self.monitor.scores(torch.stack([known.transform(files.image(row)) for row in rows]))
            looked += [
                SeenImage(files.paths[row], float(score), bool(score > self.monitor.threshold))
                for row, score in zip(rows, scores)
            ]
        return looked, skipped


@dataclass(frozen=True)
class SeenImage:
    """One picture, its score along the direction, and whether that is above the threshold."""

    image: str
    score: float
    is_flagged: bool


def monitor_run(folder: Path, *, false_fire_rate: float = 0.01, progress: Progress = silent) -> RunMonitor:
    """Fit a monitor from the cache of a finished run, and keep it as ``monitor.safetensors`` in its folder.

    The threshold is set on the clean validation images, what it is worth is counted on the test images. The model is
    the one whose weights the run kept.
    """
    file = folder / "run.yaml"
    if not file.is_file() or not (folder / "results.csv").is_file():
        raise RunError(
            f"{folder} is not the folder of a finished `hansfree run`: it has no run.yaml or no results.csv."
        )
    run = read_run_file(file)
    weights = str(kept_weights(Run(folder)).absolute())
    section = run.model.model_copy(update={"weights": weights})
    opened = open_run_file(run.model_copy(update={"out": folder, "model": section}), progress=progress)
    check_unchanged(opened)  # other images than the run's could be those that it learned from
    material = Material(opened.setting, folder, folder / "activations", progress=progress)
    held_out = material.activations
    monitor = Monitor.fit(
        opened.setting.model,
        material.cav,
        clean=held_out["val_clean"],
        test_clean=held_out["test_clean"],
        test_biased=held_out.get("test_biased"),
        false_fire_rate=false_fire_rate,
    )
    monitor.save(folder / _FILE)
    return RunMonitor(monitor, opened, folder / _FILE)


def table_of(looked: Sequence[SeenImage]) -> str:
    """Return a CSV table: image, score, flagged."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "score", "flagged"))
    writer.writerows((one.image, f"{one.score:.6g}", int(one.is_flagged)) for one in looked)
    return text.getvalue()


def _list_images(given: Sequence[Path]) -> list[str]:
    """Return files as they are, and the pictures of folders in the order of their paths."""
    found: list[str] = []
    for path in given:
        if path.is_dir():
            inside = list_pictures(path)
            if not inside:
                raise DataError(f"{path} holds no pictures.")
            found += inside
        elif path.is_file():
            found.append(str(path))
        else:
            raise DataError(f"There is no file or folder {path}.{neighbour(path)}")
    return found
