"""Run by the memory benchmark in a process of its own: ``python -m benchmarks.speed.peak IMAGES OUT.json``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hansfree._internal.files import write_json
from hansfree._internal.progress import without_warnings
from hansfree.activations import collect_activations, compute_features, cut_at
from hansfree.cavs import SignalCAV
from hansfree.corrections import RRClArC
from hansfree.corrections.selection import Validator
from hansfree.corrections.training import FineTuning
from hansfree.data.examples import IMAGENET, ImageDataset
from hansfree.models import architecture_named, build_model

_SIDE = 96  # pixels: 18 kB of activations per image, so that 16,000 kept ones would double the process
_CLASSES = 4
_INTERVAL = 0.002  # seconds between two looks at the memory


class Repeated(ImageDataset):
    """One drawn image, given out many times, so that the images themselves take no memory and no time."""

    def __init__(self, n: int) -> None:
        self.labels, self.ids = np.arange(n) % _CLASSES, np.arange(n)
        self.has_artifact = np.arange(n) % 3 == 0
        self.class_names, self.transform = tuple("abcd"), IMAGENET
        self.picture = np.random.default_rng(0).integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)

    @property
    def fingerprint(self) -> str:
        """How many there are."""
        return f"Repeated({len(self)})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the image, brighter where it carries the artifact, for a CAV needs a difference."""
        image = self.picture // 2 + 64 * self.has_artifact[index].astype(np.uint8)
        return image, np.zeros(image.shape[:2], dtype=bool)


def correct(images: int, folder: Path) -> None:
    """Fill a cache, fit the CAV and train the whole path for an epoch with validation."""
    model, layer = build_model("demo", classes=_CLASSES).eval(), architecture_named("demo").layer
    train = collect_activations(model, layer, Repeated(images), folder=folder)
    held_out = collect_activations(model, layer, Repeated(_CLASSES * 25), folder=folder)
    cut = cut_at(model, train)
    few = slice(0, 1024)  # a direction of some images: fitting holds their pooled activations in memory
    cav = SignalCAV().fit(train.pooled[few], np.asarray(train.has_artifact)[few])
    features = compute_features(cut, held_out)
    watch = Validator(features, features, 0, np.asarray(held_out.labels))
    with without_warnings():  # of strengths that diverge
        list(
            RRClArC(cav, tuning=FineTuning(epochs=1, batch_size=64)).train(
                cut, train, RRClArC.info.strengths, watch=watch
            )
        )


def anonymous() -> int:
    """Return the bytes of this process that stand in memory and in no file."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def peak_of(work: Callable[[], None]) -> int:
    """Return the most anonymous memory that was seen while the work ran."""
    seen, stop = [anonymous()], threading.Event()

    def watch() -> None:
        while not stop.wait(_INTERVAL):
            seen[0] = max(seen[0], anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        work()
    finally:
        stop.set()
        thread.join()
    return seen[0]


if __name__ == "__main__":
    number, out = int(sys.argv[1]), Path(sys.argv[2])
    write_json(out, peak_of(lambda: correct(number, out.parent / "cache")))
