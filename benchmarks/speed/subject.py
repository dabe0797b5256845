"""What is raced on: a model with random weights, its images in memory or as files, and what follows from both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.speed.sizes import Sizes
from hansfree.artifacts import Timestamp
from hansfree.corrections.training import FineTuning
from hansfree.datasets import Example, ExampleSet, Flagged, InMemory, Part, Stamped, SyntheticLesions
from hansfree.datasets.images import ImageFiles
from hansfree.models import architecture_named, build_model
from hansfree.models.surgery import split

CLASSES = 8
_LARGE_HEAD = 10_000_000  # parameters; the whole path of a larger one takes hours, so its epochs are multiplied up
_LEADING = 2_048  # directions that a large head is trained along
_EPOCHS_TIMED = 3  # of a large head, per turn; the first only warms up


@dataclass(frozen=True, eq=False)
class Images:
    """The three sets of a correction: all of them go through the model, on our side and in the plain forward pass."""

    train: ExampleSet
    clean: ExampleSet  # validation
    biased: ExampleSet  # validation: the same images with the artifact

    def __len__(self) -> int:
        return len(self.train) + len(self.clean) + len(self.biased)

    def loaders(self, batch: int) -> list[DataLoader[Example]]:
        """Return the loaders that every side uses."""
        return [DataLoader(part, batch_size=batch) for part in (self.train, self.clean, self.biased)]

    def first(self, n: int) -> Images:
        """Return the sets with n training images, and as much less of the others; in memory as before."""
        held_out = max(CLASSES, n // 4)
        return Images(*(InMemory(Part(part, range(k))) for part, k in zip(self._parts, (n, held_out, held_out))))

    def as_files(self, folder: Path) -> Images:
        """Write all images as JPEG of twice their side, as photographs are, and return the sets that read them."""
        return Images(*(_written(part, folder / str(number)) for number, part in enumerate(self._parts)))

    @property
    def _parts(self) -> tuple[ExampleSet, ...]:
        return self.train, self.clean, self.biased


class Subject:
    """One model of the benchmark; nothing is built or drawn before it is asked for."""

    def __init__(self, sizes: Sizes, name: str) -> None:
        architecture = architecture_named(name)
        self.sizes, self.name = sizes, name
        self.layer, self.activation = architecture.layer, architecture.following
        self.tuning = FineTuning(optimizer=architecture.optimizer, batch_size=sizes.batch, leading=_LEADING)

    @cached_property
    def model(self) -> nn.Module:
        """The model, with weights of its own."""
        return build_model(self.name, classes=CLASSES).eval()

    @cached_property
    def is_large(self) -> bool:
        """Whether the head is too large for whole paths, and the model slow."""
        parameters = split(self.model, self.layer).head_parameters()
        return sum(parameter.numel() for parameter in parameters.values()) > _LARGE_HEAD

    @property
    def epochs_timed(self) -> int | None:
        """How many epochs of one strength stand for our whole path; None where all of it is run."""
        return _EPOCHS_TIMED if self.is_large else None

    @property
    def times(self) -> int:
        """How often the images count: a large head is trained on more of them than go through the model."""
        return self.sizes.at_large_head // self.sizes.batch if self.is_large else 1

    @cached_property
    def images(self) -> Images:
        """Drawn lesions, half of those for training with a timestamp."""
        n = self.sizes.batch if self.is_large else self.sizes.images
        train = SyntheticLesions(n, size=self.sizes.size, classes=CLASSES)
        held_out = SyntheticLesions(max(CLASSES, n // 4), size=self.sizes.size, classes=CLASSES, start=n)
        return Images(
            train=InMemory(Stamped(train, Timestamp(), share=0.5)),
            clean=InMemory(Stamped(held_out, Timestamp(), share=0)),
            biased=InMemory(Stamped(held_out, Timestamp(), share=1)),
        )

    @torch.inference_mode()
    def forward(self, images: Images, batch: int) -> None:
        """Run one plain forward pass over all images: the floor that nobody gets below."""
        for loader in images.loaders(batch):
            for loaded in loader:
                self.model(loaded.image)


def _written(part: ExampleSet, folder: Path) -> ExampleSet:
    folder.mkdir(parents=True)
    paths = [folder / f"{index:06}.jpg" for index in range(len(part))]
    for index, path in enumerate(paths):
        pixels, _ = part.pixels(index)
        side = 2 * len(pixels)
        Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR).save(path, quality=90)
    files = ImageFiles(paths, part.labels, class_names=part.class_names, size=side // 2)
    return Flagged(files, part.has_artifact, transform=part.transform)
