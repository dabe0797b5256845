"""A world whose truth is known: one layer has a channel for the artifact, the next mixes it into the class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from hansfree._internal.store import open_run
from hansfree.data.artifacts import Timestamp
from hansfree.data.biased import BiasedData, insert_bias
from hansfree.data.examples import ImageDataset, Normalize
from hansfree.data.lesions import SyntheticLesions
from hansfree.pipeline import Experiment, Setting


class Squares(ImageDataset):
    """Noise; red tells the class, a green corner is the artifact."""

    class_names = ("red", "dark")
    transform = Normalize((0.5,) * 3, (0.5,) * 3)

    def __init__(self, n: int, *, artifact: str, start: int = 0) -> None:
        rng = np.random.default_rng(start)
        self.labels = np.arange(n) % 2
        leaks = (self.labels == 0) & (rng.random(n) < 0.5)
        self.has_artifact = {"none": np.zeros(n, bool), "all": np.ones(n, bool), "leaks": leaks}[artifact]
        self.ids = start + np.arange(n)
        images = rng.normal(128, 20, size=(n, 8, 8, 3))
        images[..., 0] += 14 * (1 - 2 * self.labels)[:, None, None] + rng.normal(0, 8, size=(n, 1, 1))
        images[self.has_artifact, :4, :4, 1] += 100
        self._images = np.clip(images, 0, 255).astype(np.uint8)

    @property
    def fingerprint(self) -> str:
        return f"Squares {self._images.sum()} {len(self)} {self.has_artifact.sum()}"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self._images[index], np.zeros((8, 8), dtype=bool)


class Mixing(nn.Module):
    """``apart`` keeps the colours apart; ``mixed`` adds green to red, so that the artifact looks like the class."""

    def __init__(self) -> None:
        super().__init__()
        self.apart = nn.Conv2d(3, 3, 1)
        self.mixed = nn.Conv2d(3, 2, 1)
        self.fc = nn.Linear(2, 2)
        with torch.no_grad():
            for layer in (self.apart, self.mixed, self.fc):
                layer.bias.zero_()
            self.apart.weight.copy_(torch.eye(3)[:, :, None, None])
            self.mixed.weight.copy_(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.01]])[:, :, None, None])
            self.fc.weight.copy_(torch.tensor([[20.0, 0.0], [-20.0, 0.0]]))

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(torch.nn.functional.softplus(self.mixed(self.apart(images) + 2)).mean((2, 3)) - 4.0)


def make_data(n: int = 240, *, inserted: bool = True) -> BiasedData:
    held_out = {
        f"{part}_{kind}": Squares(120, artifact=artifact, start=start if inserted else start + place)
        for part, start in (("val", 1000), ("test", 2000))
        for place, (kind, artifact) in enumerate((("clean", "none"), ("biased", "all")))
    }
    return BiasedData(
        train=Squares(n, artifact="leaks"),
        **held_out,
        biased_class=0,
        artifact="green",
        is_localized=True,
        has_masks=False,
        is_inserted=inserted,
    )


def write_table(root: Path) -> None:
    """Write pictures of two classes, A and B, and a table of them with a split, as a folder of somebody's images."""
    images = SyntheticLesions(160, size=32, classes=2)
    lines = ["image,label,split"]
    for row in range(len(images)):
        Image.fromarray(images.image(row)).save(root / f"{row}.png")
        part = "train" if row < 80 else "val" if row < 136 else "test"
        lines.append(f"{row}.png,{'AB'[images.labels[row]]},{part}")
    (root / "labels.csv").write_text("\n".join(lines))


def stamped(*counts: int, size: int = 32, classes: int = 2, seed: int = 0) -> BiasedData:
    """Return drawn lesions, so many of each split, and a timestamp in half of one class that can be inserted."""
    starts = np.cumsum((0, *counts))
    parts = [SyntheticLesions(n, size=size, classes=classes, start=int(start)) for n, start in zip(counts, starts)]
    return insert_bias(parts, Timestamp(), biased_class=0, share=0.5, seed=seed)


@contextmanager
def opened(setting: Setting, folder: Path, cache: Path | None = None) -> Iterator[Experiment]:
    """Return an experiment in a run directory of its own."""
    with open_run(folder, {"tiny": True}) as run:
        yield Experiment(setting, run, cache=cache)
