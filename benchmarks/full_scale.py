"""Measure a slice of a simulated ImageNet, and extrapolate to all of it.

python -m benchmarks.full_scale FOLDER --images 64

The folder gets ImageNet's official layout: 1,000 classes whose 1,331,000 files are links to a few pictures. Names,
splits and sets are made of all of them; files are opened of a slice only. Times are those of one core of this machine,
whatever else runs there.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from benchmarks.speed.peak import peak_of
from hansfree._internal.files import format_bytes
from hansfree._internal.progress import without_warnings
from hansfree.activations import collect, compute_features, cut_at, plan_pass
from hansfree.cavs import SignalCAV
from hansfree.corrections import RRClArC
from hansfree.corrections.selection import Validator
from hansfree.corrections.training import FineTuning, Pretraining, pretrain
from hansfree.data import SETS, BiasedData, Subset
from hansfree.data.images import check_images
from hansfree.models import architecture_named, build_model
from hansfree.report import markdown_table
from hansfree_paper.natural_images import TENCH, ImageNet
from hansfree_paper.subjects import Plan, check_disk

CLASSES, PER_CLASS = 1000, {"train": 1281, "val": 50}
_PICTURES = 8
_SHAPE = (375, 500, 3)  # the usual one in ImageNet


def make_layout(root: Path, *, classes: int = CLASSES, per_class: dict[str, int] = PER_CLASS) -> None:
    """Write a few pictures, a folder of links to them for each part, and a link to that folder for each class."""
    rng = np.random.default_rng(0)
    (root / "pictures").mkdir(parents=True, exist_ok=True)
    for number in range(_PICTURES):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        coarse.resize(_SHAPE[1::-1]).save(root / "pictures" / f"{number}.JPEG", quality=90)
    for part, count in per_class.items():
        (root / f"files-{part}").mkdir(exist_ok=True)
        (root / part).mkdir(exist_ok=True)
        for number in range(count):
            if not (link := root / f"files-{part}" / f"{number}.JPEG").exists():
                os.link(root / "pictures" / f"{number % _PICTURES}.JPEG", link)
        for number in range(classes):
            wnid = TENCH if number == 0 else f"n{2_000_000 + number:08}"
            if not (link := root / part / wnid).exists():
                link.symlink_to(Path("..") / f"files-{part}")


@dataclass(frozen=True)
class Stage:
    """A measured stage: how long a number of images took, of how many it will be, and how often."""

    name: str
    images: int
    seconds: float
    total: int
    times: int = 1

    @property
    def hours(self) -> float:
        """The extrapolated time of all images."""
        return self.seconds / self.images * self.total * self.times / 3600


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds of a core the work took."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(root: Path, data: BiasedData, study: ImageNet, *, model_name: str, images: int) -> list[Stage]:
    """Run each stage on a slice of the images."""
    model, layer = (
        build_model(model_name, classes=len(data.train.class_names)).eval(),
        architecture_named(model_name).layer,
    )
    rows = np.linspace(0, len(data.train) - 1, images).astype(int)
    rows[::2] = np.flatnonzero(data.train.has_artifact)[: len(rows[::2])]  # a CAV needs both kinds
    train, everything = Subset(data.train, np.unique(rows)), sum(len(getattr(data, name)) for name in SETS)
    paths = [study.source.paths[int(row)] for row in range(images)]
    recipe = Pretraining(optimizer="sgd", epochs=1, batch_size=8, momentum=0.9, learning_rate=1e-4)
    stages = [
        Stage("check of all files (headers, warm)", images, timed(lambda: check_images(paths, skip_bad=False)),
              len(study.source)),
        Stage("training of the base model", len(train), timed(lambda: pretrain(model, train, recipe)), len(data.train),
              study.recipe.epochs.get(model_name, 1)),
    ]  # fmt: skip
    plan = plan_pass(model, layer, train, folder=root / "cache")
    passed = timed(lambda: list(plan.make(plan.ranges)))
    stages.append(Stage("pass of all sets to the layer", len(train), passed, everything))
    cached = collect(plan)
    cut = cut_at(model, cached)
    cav = SignalCAV().fit(cached.pooled, np.asarray(cached.has_artifact))
    features = compute_features(cut, cached)
    watch = Validator(features, features, 0, np.asarray(cached.labels))
    method = RRClArC(cav, scale="paper", target="random", tuning=FineTuning(epochs=1))

    def correct() -> None:
        with without_warnings():  # of strengths that diverge
            list(method.train(cut, cached, RRClArC.info.paper_strengths, watch=watch))

    seconds = timed(correct)
    stages.append(Stage("RR-ClArC, 22 strengths, 10 epochs", len(train), seconds, len(data.train), 10))
    return stages


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=64, help="of the slice")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--classes", type=int, default=CLASSES)
    given = parser.parse_args()
    torch.set_num_threads(1)
    make_layout(given.folder, classes=given.classes)
    made: list[tuple[ImageNet, BiasedData]] = []

    def open_all() -> None:
        with patch("hansfree.data.listing.check_images", lambda paths, **_: (np.arange(len(paths)), [])):
            study = ImageNet(given.folder)
        made.append((study, study.data(given.model)))

    start = time.process_time()
    peak, seconds = peak_of(open_all), time.process_time() - start
    ((study, data),) = made
    print(
        f"{len(study.source):,} images: names, splits and sets in {seconds:.0f} s and {format_bytes(peak)} of memory.\n"
    )
    stages = measure(given.folder, data, study, model_name=given.model, images=given.images)
    print(markdown_table(
        ["stage", "measured", "core hours for all"],
        [[each.name, f"{each.images} images in {each.seconds:.3g} s", f"{each.hours:.1f}"] for each in stages],
    ))  # fmt: skip
    for precision in ("float32", "float16"):
        plan = Plan(model=given.model, precision=precision)
        with patch("shutil.disk_usage", lambda _: argparse.Namespace(free=float("inf"))):
            print(f"Disk, {precision}: {format_bytes(check_disk([(study, plan)], given.folder / 'none'))}")


if __name__ == "__main__":
    main()
