"""Drawn images with three kinds of artifact, and small networks that learned the artifact as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree._internal.hashing import fingerprint, seeded
from hansfree.corrections.deep import DeepCorrection, NetworkTuning
from hansfree.data.examples import ImageDataset, Normalize

Kind = Literal["patch", "brightness", "low bits"]
KINDS: tuple[Kind, ...] = ("patch", "brightness", "low bits")
# Contrast of the class and noise, in gray levels: the artifact is easier to learn than the class.
DRAWING: dict[Kind, tuple[float, float]] = {"patch": (2.0, 5.0), "brightness": (8.0, 10.0), "low bits": (1.3, 5.0)}
SIZE = 16
CORNER = 4  # side of the patch
HALF = Normalize(mean=(0.5,) * 3, std=(0.25,) * 3)
TUNING = {
    kind: NetworkTuning(learning_rate=0.02 if kind == "brightness" else 0.005, epochs=8, augment=False)
    for kind in KINDS
}


def insert(kind: Kind, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the uint8 image with the artifact, and the mask of what it covers."""
    mask = np.zeros(image.shape[:2], dtype=bool)
    if kind == "patch":
        mask[:CORNER, :CORNER] = True
        return np.where(mask[..., None], np.uint8(250), image), mask
    mask[:] = True
    if kind == "brightness":
        return np.round(0.9 * image + 40).clip(0, 255).astype(np.uint8), mask
    stripes = 7 * (np.indices(image.shape[:2]).sum(0) % 2).astype(np.uint8)
    return (image & 248) | stripes[..., None], mask


class Drawn(ImageDataset):
    """Faint stripes on noise: horizontal in class 0, vertical in class 1. The artifact is in half of class 1.

    Args:
        inserted: all images with the artifact, none, or those of the training.
        counterexamples: share of class 0 with the artifact.
    """

    class_names = ("horizontal", "vertical")
    transform = HALF

    def __init__(
        self,
        kind: Kind,
        count: int,
        *,
        inserted: Literal["all", "none", "half"] = "half",
        counterexamples: float = 0.0,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.kind, self.ids = kind, np.arange(count)
        self.labels = np.arange(count) % 2
        shares = {"all": (1.0, 1.0), "none": (0.0, 0.0), "half": (counterexamples, 0.5)}[inserted]
        self.has_artifact = np.zeros(count, dtype=bool)
        for label, share in enumerate(shares):
            rows = np.flatnonzero(self.labels == label)
            self.has_artifact[rows[: round(share * len(rows))]] = True
        wave = np.cos(np.arange(SIZE) * np.pi / 2)
        stripes = np.stack([np.tile(wave[:, None], (1, SIZE)), np.tile(wave, (SIZE, 1))])[self.labels]
        contrast, noise = DRAWING[kind]
        plain = 90 + rng.normal(0, 6, (count, 1, 1)) + contrast * stripes + rng.normal(0, noise, (count, SIZE, SIZE))
        self.plain = np.repeat(plain.round().clip(0, 255).astype(np.uint8)[..., None], 3, axis=-1)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.kind, self.plain, self.has_artifact)

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if self.has_artifact[index]:
            return insert(self.kind, self.plain[index])
        return self.plain[index], np.zeros((SIZE, SIZE), dtype=bool)


class SmallNet(nn.Module):
    """Three blocks of convolution, batch norm and ReLU in place; then two fully connected layers with dropout."""

    def __init__(self, outputs: int = 2, widths: tuple[int, ...] = (8, 12, 16)) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for given, made in zip((3, *widths), widths):
            conv = nn.Conv2d(given, made, 3, padding=1, bias=False)
            blocks.append(
                nn.Sequential(conv, nn.BatchNorm2d(made), nn.ReLU(inplace=True), nn.MaxPool2d(2, ceil_mode=True))
            )
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(widths[-1], outputs)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.dropout(self.blocks(images).mean((2, 3))))


def all_images(data: ImageDataset) -> tuple[Tensor, Tensor]:
    batch = data.batch(range(len(data)))
    return batch.image, batch.label


@dataclass(frozen=True)
class World:
    """A network that learned the artifact, and the images it learned it from."""

    model: nn.Module
    train: Drawn


@cache
def world(kind: Kind) -> World:
    """Train a network as a whole, once for all tests."""
    data = Drawn(kind, 600)
    images, labels = all_images(data)
    with seeded(0):
        model = SmallNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(12):
            for rows in torch.randperm(len(data)).split(50):
                optimizer.zero_grad()
                functional.cross_entropy(model(images[rows]), labels[rows]).backward()
                optimizer.step()
    return World(model.eval(), data)


@cache
def corrected(kind: Kind, method: str, strength: float = 1.0, *, is_given: bool = False) -> nn.Module:
    """Correct the network of a world, once for all tests; ``is_given`` inserts the artifact itself."""
    biased, options = world(kind), {"insert": lambda image, rng: insert(kind, image)} if is_given else {}
    found = DeepCorrection.named(method)(strength=strength, tuning=TUNING[kind], **options)
    return found.correct(biased.model, biased.train)


@cache
def held_out(kind: Kind) -> tuple[Tensor, Tensor, Tensor]:
    """Return new images without and with the artifact, and their labels."""
    (clean, labels), (changed, _) = (all_images(Drawn(kind, 400, inserted=which, seed=1)) for which in ("none", "all"))
    return clean, changed, labels


@torch.no_grad()
def scores(model: nn.Module, kind: Kind) -> tuple[float, float]:
    """Return the flip rate and the balanced accuracy on new images.

    The flip rate is the share of images without the artifact that are answered otherwise once it is inserted.
    """
    clean, changed, labels = held_out(kind)
    answers, after = model(clean).argmax(1), model(changed).argmax(1)
    flipped = (answers != after)[answers == 0].float().mean()
    accuracy = torch.stack([(answers == labels)[labels == label].float().mean() for label in (0, 1)]).mean()
    return float(flipped), float(accuracy)
