"""Sizes, images and models of the benchmarks, and the clock: compared sides run in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.speed.reference import ACTIVATIONS
from hansfree._internal.progress import Progress
from hansfree.corrections.training import FineTuning
from hansfree.data.artifacts import Timestamp
from hansfree.data.datasets import InMemory, LabelledImages, Subset
from hansfree.data.examples import Example, ImageDataset
from hansfree.data.images import ImageFiles
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import OptionError
from hansfree.models import architecture_named, build_model
from hansfree.models.surgery import split

Side = Callable[[], float]
"""Do the work once and return its seconds, measured or extrapolated."""


def clock() -> float:
    """Return the time in seconds; all benchmarks use this clock."""
    return perf_counter()


def timed(work: Callable[[], object]) -> Side:
    """Return a side that measures the wall time of the work."""

    def side() -> float:
        start = clock()
        work()
        return clock() - start

    return side


def take_turns(
    sides: Mapping[str, Side], *, turns: int, progress: Progress, label: str
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of every side in every turn.

    Every other turn runs in reverse order, so that a drift of the machine favours no side.
    """
    order = [name for turn in range(turns) for name in (sides if turn % 2 == 0 else reversed(list(sides)))]
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name in progress(order, total=len(order), label=label):
        gc.collect()  # cycles of the last turn may hold gigabytes
        seconds[name].append(sides[name]())
    return {name: tuple(taken) for name, taken in seconds.items()}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The amounts of all benchmarks; the defaults take about 45 minutes on two cores.

    For a model with a large head (VGG-16) one batch of images passes through the model and is extrapolated.
    """

    models: tuple[str, ...] = ("resnet18", "efficientnet_b0", "vgg16")
    images: int = 256  # for training; a quarter as many for validation, without and with the artifact
    batch: int = 64
    at_large_head: int = 2_560  # training images of a large head, a multiple of the batch
    size: int = 224  # pixels
    turns: int = 3
    heatmaps: int = 32  # a quarter as many of a model with a large head
    samples: int = 400  # of a CAV
    channels: int = 512
    remembered: tuple[int, ...] = (1_000, 4_000, 16_000)  # images of which the peak of memory is taken
    classes: tuple[int, ...] = (8, 64, 1_000)  # of which the growth is taken
    run_images: int = 1_600  # for training, of a whole run; a quarter as many for validation and for the test
    run_size: int = 112  # pixels

    def __post_init__(self) -> None:
        """Check the amounts."""
        for model in self.models:
            architecture_named(model)
        if not self.models or self.turns < 1:
            raise OptionError(f"At least one model and one turn are needed; given {len(self.models)} and {self.turns}.")
        if self.batch < 1 or self.images < 4 * self.batch or self.images % (4 * self.batch):
            raise OptionError(
                f"images is {self.images} and batch {self.batch}; images must be a multiple of four batches, so that "
                "every timed step is a full one, also with a half and a quarter of the images."
            )


TRIAL = Sizes(
    models=("demo",),
    images=64,
    batch=16,
    at_large_head=64,
    size=32,
    turns=2,
    heatmaps=8,
    samples=60,
    channels=16,
    remembered=(100, 200, 400),
    classes=(8, 16, 32),
    run_images=480,
    run_size=32,
)
"""``--quick``: a check that everything works, in seconds; the numbers do not show speed."""


CLASSES = 8
_LARGE_HEAD = 10_000_000  # parameters; the whole path of a larger one takes hours, so its epochs are multiplied up
_EPOCHS_TIMED = 3  # of a large head, per turn; the first only warms up


@dataclass(frozen=True, eq=False)
class Images:
    """The three sets of a correction; all pass through the model on every side."""

    train: ImageDataset
    clean: ImageDataset  # validation
    biased: ImageDataset  # validation: the same images with the artifact

    def __len__(self) -> int:
        return len(self.train) + len(self.clean) + len(self.biased)

    def loaders(self, batch: int) -> list[DataLoader[Example]]:
        """Return one loader per set."""
        return [DataLoader(part, batch_size=batch) for part in (self.train, self.clean, self.biased)]

    def first(self, n: int) -> Images:
        """Return n training images and a proportional number of the others, in memory."""
        held_out = max(CLASSES, n // 4)
        return Images(*(InMemory(Subset(part, range(k))) for part, k in zip(self._parts, (n, held_out, held_out))))

    def as_files(self, folder: Path) -> Images:
        """Write all images as JPEG of twice their size, and return sets that read them."""
        return Images(*(_written(part, folder / str(number)) for number, part in enumerate(self._parts)))

    @property
    def _parts(self) -> tuple[ImageDataset, ...]:
        return self.train, self.clean, self.biased


class Subject:
    """One model with its images, built on first use."""

    def __init__(self, sizes: Sizes, name: str) -> None:
        architecture = architecture_named(name)
        self.sizes, self.name = sizes, name
        self.layer, self.activation = architecture.layer, ACTIVATIONS[name]
        self.tuning = FineTuning(optimizer=architecture.optimizer, batch_size=sizes.batch)

    @cached_property
    def model(self) -> nn.Module:
        """The model with random weights."""
        return build_model(self.name, classes=CLASSES).eval()

    @cached_property
    def is_large(self) -> bool:
        """Whether the head is too large to time the whole path."""
        parameters = split(self.model, self.layer).head_parameters()
        return sum(parameter.numel() for parameter in parameters.values()) > _LARGE_HEAD

    @property
    def epochs_timed(self) -> int | None:
        """Timed epochs of one strength, from which our path is extrapolated; None: all of it runs."""
        return _EPOCHS_TIMED if self.is_large else None

    @property
    def times(self) -> int:
        """The factor by which the images of a large head are extrapolated."""
        return self.sizes.at_large_head // self.sizes.batch if self.is_large else 1

    @cached_property
    def images(self) -> Images:
        """Synthetic lesions; half of the training images have a timestamp."""
        n = self.sizes.batch if self.is_large else self.sizes.images
        train = SyntheticLesions(n, size=self.sizes.size, classes=CLASSES)
        held_out = SyntheticLesions(max(CLASSES, n // 4), size=self.sizes.size, classes=CLASSES, start=n)
        return Images(
            train=InMemory(WithArtifact(train, Timestamp(), share=0.5)),
            clean=InMemory(WithArtifact(held_out, Timestamp(), share=0)),
            biased=InMemory(WithArtifact(held_out, Timestamp(), share=1)),
        )

    @torch.inference_mode()
    def forward(self, images: Images, batch: int) -> None:
        """Run one plain forward pass over all images: the lower bound."""
        for loader in images.loaders(batch):
            for loaded in loader:
                self.model(loaded.image)


def _written(part: ImageDataset, folder: Path) -> ImageDataset:
    folder.mkdir(parents=True)
    paths = [folder / f"{index:06}.jpg" for index in range(len(part))]
    for index, path in enumerate(paths):
        pixels, _ = part.pixels(index)
        side = 2 * len(pixels)
        Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR).save(path, quality=90)
    files = ImageFiles(paths, part.labels, class_names=part.class_names, size=side // 2)
    return LabelledImages(files, part.has_artifact, transform=part.transform)
