"""Our pass and path against the physical floor: one plain forward pass over the same images."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.speed.measures import Target, rate, ratio
from benchmarks.speed.ours import walk
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Images, Subject
from benchmarks.speed.timing import Side, take_turns, timed
from hansfree._internal.progress import Progress


class FloorRace(Race, name="floor"):
    """The floor is ``inference_mode``, the fastest of three batch sizes; from memory, and from JPEG files."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Choose the floor's batch, then let floor and path take turns."""
        batches = (subject.sizes.batch // 4, subject.sizes.batch, 2 * subject.sizes.batch)
        subject.forward(subject.images, batches[0])  # to warm up
        tried = {batch: timed(lambda batch=batch: subject.forward(subject.images, batch))() for batch in batches}  # type: ignore[misc]
        fastest = min(tried, key=tried.__getitem__)
        with TemporaryDirectory(prefix="hansfree-bench-") as folder:
            files = subject.images.as_files(Path(folder))
            sides: dict[str, Side] = {
                "forward": timed(lambda: subject.forward(subject.images, fastest)),
                "path": lambda: _path(subject, subject.images),
                "forward_jpeg": timed(lambda: subject.forward(files, fastest)),
                "path_jpeg": lambda: _path(subject, files),
                "jpeg": timed(lambda: _read(files, fastest)),
            }
            label = f"floor {subject.name}"
            seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=label)
        forward, forward_jpeg = ([subject.times * t for t in seconds[f"forward{kind}"]] for kind in ("", "_jpeg"))
        name, target = subject.name, None if subject.is_large else Target("at most", 1.1)
        multiplied = (
            f" Our path is multiplied up from {subject.epochs_timed} epochs of one strength, both from "
            f"{len(subject.images)} to {subject.times * len(subject.images)} images."
            if subject.is_large
            else ""
        )
        return Outcome(
            (
                ratio(f"{name}.path_over_forward", seconds["path"], forward, target),
                ratio(f"{name}.path_over_forward_jpeg", seconds["path_jpeg"], forward_jpeg, target),
                rate(f"{name}.jpeg_images_per_second", len(files), seconds["jpeg"]),
            ),
            {"images": len(subject.images), "floor_batch": fastest, "floor_batches_tried": tried},
            (f"{name}: the floor's batch is {fastest}, the fastest of {', '.join(map(str, batches))}.{multiplied}",),
        )


def _path(subject: Subject, images: Images) -> float:
    return walk(
        subject.model,
        subject.layer,
        images,
        subject.tuning,
        epochs_timed=subject.epochs_timed,
        times=subject.times,
    ).seconds


def _read(images: Images, batch: int) -> None:
    for loader in images.loaders(batch):
        for _ in loader:
            pass
