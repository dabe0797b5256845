"""Benchmark datasets of the paper: files, classes, bias, training recipe and published numbers."""

from __future__ import annotations

import copy
import csv
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import Registered
from hansfree.data import (
    Artifact,
    BiasedData,
    Channels,
    ImageDataset,
    LabelledImages,
    Listing,
    OpenedImages,
    Resize,
    Subset,
    insert_bias,
    natural_bias,
    split_rows,
)
from hansfree.errors import DataError, OptionError, nearest
from hansfree_paper.starts import normalisation_for

MOMENTUM = 0.9  # of SGD in the published code; the paper names none
PUBLISHED_METRICS = (
    "accuracy_clean",
    "accuracy_biased",
    "tcav_positions",
    "tcav_sensitivity_positions",
    "artifact_relevance",
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How models are trained on a dataset and corrected: what the paper's appendix varies from one to the other."""

    epochs: Mapping[str, int]  # by model
    milestones: tuple[int, ...] = ()  # epochs after which the rate is divided by 10
    batch_size: int = 32
    momentum: float = 0.0  # of SGD, in training and correction
    fresh_rates: Mapping[str, float] = field(default_factory=dict)  # Adam's first rate where training starts from
    # random weights, by model; the paper starts from pretrained ones, with the rates of its architectures
    correction_rates: Mapping[str, float] = field(default_factory=dict)  # by model, where it is not 1e-4


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper reports for a dataset (tables 1, A.3 to A.6)."""

    scores: Mapping[tuple[str, str, str], tuple[float, float]]  # (model, method, metric): value, standard error
    strengths: Mapping[tuple[str, str], float]  # (model, method)
    seconds: Mapping[tuple[str, str], tuple[float, float]]  # (model, method): per epoch, standard error

    @classmethod
    def of(cls, dataset: str) -> Published:
        """Read a dataset's rows of ``published.csv``: accuracies, TCAV and relevance in %, sensitivity times 1000."""
        scores, strengths, seconds = {}, {}, {}
        with (Path(__file__).parent / "published.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["dataset"] == dataset]
        for row in rows:
            key = row["model"], row["method"]
            for metric in PUBLISHED_METRICS:
                if row[metric]:
                    unit = 1000 if metric == "tcav_sensitivity_positions" else 100
                    scores[key[0], key[1], metric] = float(row[metric]) / unit, float(row[f"{metric}_stderr"]) / unit
            if row["strength"]:
                strengths[key] = float(row["strength"])
            seconds[key] = float(row["seconds"]), float(row["seconds_stderr"])
        return cls(scores=scores, strengths=strengths, seconds=seconds)


class BenchmarkDataset(Registered, ABC):
    """A dataset and its bias. A member says where the files are, what the classes mean, and how the bias comes in.

    Args:
        root: folder of the dataset's files in their official layout; the embedded world needs none.
        artifact: one of ``artifacts``; None is the first, the paper's own.
        size: side of the images in pixels; None is ``default_size``.
        seed: of splits and of which images carry the artifact.
        skip_bad: leave out images that are missing or cannot be read, and record them in ``skipped``; otherwise the
            first one is an error. All others keep their part, and each bad one moves the artifact of one other at most.
    """

    kind = "dataset"
    title: ClassVar[str]
    artifacts: ClassVar[tuple[str, ...]]
    further_artifacts: ClassVar[str] = ""  # in words, what else the files may have
    default_size: ClassVar[int] = 224
    needs_root: ClassVar[bool] = True
    is_default: ClassVar[bool] = False  # taken where no dataset is named
    options: ClassVar[tuple[str, ...]] = ()  # of the constructor, beyond those of all studies
    recipe: ClassVar[Recipe]
    published: ClassVar[Published | None] = None

    def __init__(
        self,
        root: Path | None = None,
        *,
        artifact: str | None = None,
        size: int | None = None,
        seed: int = 0,
        skip_bad: bool = False,
        progress: Progress = silent,
    ) -> None:
        if self.needs_root and root is None:
            raise OptionError(f"{self.title} needs the folder of its files: give --root.")
        if not self.needs_root and root is not None:
            raise OptionError(f"{self.title} needs no files: leave out --root.")
        self.artifact = self._known(artifact)
        if seed < 0:
            raise OptionError(f"A seed is 0 or more, not {seed}.")
        self.root, self.size, self.seed = root, size or self.default_size, seed
        self.skip_bad, self.progress = skip_bad, progress
        self.skipped: list[str] = []  # a sentence per image that was left out
        self.remarks: list[str] = []  # sentences that belong beside every number: what the files or the bias leave open
        self.read()

    @classmethod
    def default(cls) -> type[Self]:
        """Return the member that is taken where none is named."""
        return next(member for member in cls.members().values() if member.is_default)

    def with_artifact(self, artifact: str | None) -> Self:
        """Return the same study with another artifact; its files are not checked again."""
        other = copy.copy(self)
        other.artifact = self._known(artifact)
        return other

    def _known(self, artifact: str | None) -> str:
        name = artifact or self.artifacts[0]
        if name not in self.artifacts:
            raise OptionError(
                f"{self.title} has no artifact {artifact!r}.{nearest(name, self.artifacts)} "
                f"Known: {', '.join(self.artifacts)}."
            )
        return name

    def read(self) -> None:
        """Read lists and check all files, at the end of the constructor; there is nothing to do where none are."""
        return

    @property
    def starts_clean(self) -> bool:
        """Whether pretrained weights know these very classes: they are the reference that never saw the artifact."""
        return False

    def published_labels(self, model: str) -> tuple[int, ...]:
        """Return the classes that the paper selected for a model in its Q3; empty where it selected none."""
        return ()

    @abstractmethod
    def data(self, model: str) -> BiasedData:
        """Return the sets for a model; the paper's share of artifacts differs from model to model."""

    def marked(self, model: str) -> tuple[ImageDataset, ImageDataset, ImageDataset] | None:
        """Return training, validation and test images with their bits, where the artifact is in them by nature."""
        return None

    def flags(self) -> dict[str, np.ndarray]:
        """Return what else is known of the test images, a bit each: artifacts that they carry by nature."""
        return {}


class ListedBenchmark(BenchmarkDataset):
    """Images that a list names, in three parts.

    The list and every image are checked by the constructor. The whole list is split before any image is checked, so
    that an image keeps its part when another one turns out to be unreadable.
    """

    biased_class: int  # of the class, or set by `listing` where it is only known then
    resize: Resize = "squash"
    channels: Channels = 3

    def read(self) -> None:
        """Read the list, check all images, and split them."""
        listing = self.listing(Path(self.root or ""))  # a missing root was rejected before
        parts = listing.parts or split_rows(listing.labels, groups=listing.groups, seed=self.seed)  # App. A: 80/10/10 %
        opened = listing.open(
            size=self.size, resize=self.resize, channels=self.channels, skip_bad=self.skip_bad, progress=self.progress
        )
        self.source = opened.source
        self.skipped += opened.skipped
        self.parts = opened.split(parts)
        self.check_parts(opened)

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """Read the list; raise a `DataError` with its path where it makes no sense."""

    def check_parts(self, opened: OpenedImages) -> None:
        """Reject training images without one of the classes: no model could learn it."""
        if lost := opened.untrained_classes(self.parts[0]):
            raise DataError(f"{opened.listing.place} has no training image of class {lost[0]!r}.")

    def natural_bias(self, model: str, has_artifact: np.ndarray, *, clean_train: bool) -> BiasedData:
        """Return the sets of an artifact that is in the images by nature; the bits are by image id."""
        transform, train = normalisation_for(model), self.parts[0]
        data = natural_bias(
            self.parts, has_artifact, name=self.artifact, biased_class=self.biased_class, transform=transform
        )
        if not clean_train:
            return data
        bits = has_artifact[train.ids]
        clean = Subset(LabelledImages(train, bits, transform=transform), np.flatnonzero(~bits))
        return replace(data, clean_train=clean)


class InsertedBenchmark(ListedBenchmark):
    """Images that a list names, with an artifact inserted into some of the biased class."""

    flip_share: ClassVar[float] = 0.0  # of the other classes' training images: artifact inserted, label changed

    @abstractmethod
    def share(self, model: str) -> float:
        """Return the share of the biased class's training images that get the artifact."""

    def inserted(self, model: str) -> Artifact:
        """Return the artifact as it is inserted for a model."""
        return Artifact.named(self.artifact)()

    def data(self, model: str) -> BiasedData:
        """Return the sets for a model."""
        return insert_bias(
            self.parts,
            self.inserted(model),
            biased_class=self.biased_class,
            share=self.share(model),
            flip_share=self.flip_share,
            seed=self.seed,
            transform=normalisation_for(model),
        )


def find_folder(root: Path, name: str) -> Path:
    """Return the folder ``name`` in ``root``, or the one of the same name inside it, as unpacked archives have it."""
    if not root.is_dir():
        raise DataError(f"There is no folder {root}.")
    folder = root / name
    if not folder.is_dir():
        others = [entry.name for entry in os.scandir(root) if entry.is_dir()]
        raise DataError(f"{root} has no folder {name!r}.{nearest(name, others)}")
    return folder / name if (folder / name).is_dir() else folder


def unlisted_files(folder: Path, names: Collection[str]) -> list[str]:
    """Return a sentence per picture in ``folder`` that is not among ``names``: signs of a table that does not match.

    Pictures are the files with the endings of the names: a licence or a list beside them is no fault.
    """
    listed, endings = frozenset(names), {os.path.splitext(name)[1] for name in names}
    found = sorted(entry.name for entry in os.scandir(folder) if os.path.splitext(entry.name)[1] in endings)
    return [f"{folder / name} is not in the table." for name in found if name not in listed]
