"""The cache: how fast it fills, against the plain forward pass, and how many bytes it takes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.utils.data import DataLoader

from benchmarks.speed.measures import Measure, Target, rate, ratio
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from benchmarks.speed.timing import take_turns, timed
from hansfree._internal.progress import Progress
from hansfree.activations import collect_activations, compute_features, cut_again
from hansfree.cavs import SignalCAV
from hansfree.corrections import RRClArC


class CacheRace(Race, name="cache"):
    """The pass onto disk, in a folder of its own every time, against a plain forward pass of the same batch."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Let both take turns, then weigh what lies on the disk."""
        images, batch = subject.images.train, subject.sizes.batch

        @torch.inference_mode()
        def forward() -> None:
            for loaded in DataLoader(images, batch_size=batch):
                subject.model(loaded.image)

        with TemporaryDirectory(prefix="hansfree-bench-") as folder:
            fresh = (Path(folder) / str(number) for number in range(1 + subject.sizes.turns))

            def fill() -> None:
                collect_activations(subject.model, subject.layer, images, folder=next(fresh), batch_size=batch)

            fill()  # to warm up
            sides = {"cache": timed(fill), "forward": timed(forward)}
            seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"cache {subject.name}")
            at_layer = _bytes(Path(folder) / "0")
            at_head = _bytes_of_features(subject, Path(folder) / "0")
        name, n = subject.name, len(images)
        return Outcome(
            (
                ratio(
                    f"{name}.cache_speed_over_forward", seconds["forward"], seconds["cache"], Target("at least", 0.95)
                ),
                rate(f"{name}.forward_images_per_second", n, seconds["forward"]),
                rate(f"{name}.cache_images_per_second", n, seconds["cache"]),
                Measure(f"{name}.cache_bytes_per_image", (at_layer / n,), "bytes"),
                Measure(f"{name}.features_bytes_per_image", (at_head / n,), "bytes"),
            ),
            {"images": n, "batch": batch, "precision": "float32"},
        )


def _bytes_of_features(subject: Subject, folder: Path) -> int:
    """Return what values and tangents take that the path of RR-ClArC reads in every epoch."""
    images, before = subject.images.train, _bytes(folder)
    activations = collect_activations(
        subject.model, subject.layer, images, folder=folder, batch_size=subject.sizes.batch
    )
    correction = RRClArC(SignalCAV().fit(activations.pooled, images.has_artifact))
    cut = cut_again(subject.model, activations)
    compute_features(cut, activations, directions=correction.directions(activations))
    return _bytes(folder) - before


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
