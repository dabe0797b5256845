"""A dataset with its bias, ready for an experiment: what a new dataset has to say, in one class in one file."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import Registered
from hansfree.datasets.base import ExampleSet
from hansfree.datasets.datasets import Part
from hansfree.datasets.pairs import check_bits, check_same_images
from hansfree.errors import OptionError, nearest

SETS = ("train", "val_clean", "val_biased", "test_clean", "test_biased")
PUBLISHED_METRICS = (
    "accuracy_clean",
    "accuracy_biased",
    "tcav_positions",
    "tcav_sensitivity",
    "artifact_relevance",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasedData:
    """The sets of an experiment, and what is known about the bias in them."""

    train: ExampleSet
    val_clean: ExampleSet
    val_biased: ExampleSet
    test_clean: ExampleSet
    test_biased: ExampleSet
    base_train: ExampleSet | None = None  # what the biased model learns from, where corrections see only a part of it
    clean_train: ExampleSet | None = None  # the same without the artifact, where that can be known
    train_biased: ExampleSet | None = None  # training images without the artifact, with it put in, where it can be
    biased_class: int
    artifact: str  # its name, for titles and tables
    is_localized: bool
    is_inserted: bool = True  # the biased sets are the clean ones with the artifact put in; False: it is in the scenes
    has_masks: bool = True  # the masks show where the artifact is

    @property
    def learned(self) -> ExampleSet:
        """What the biased model learns from."""
        return self.train if self.base_train is None else self.base_train

    @property
    def pairs(self) -> tuple[ExampleSet, ExampleSet] | None:
        """Training images without the artifact and the same ones with it put in, where it can be."""
        if self.train_biased is None:
            return None
        return Part(self.train, np.flatnonzero(np.isin(self.train.ids, self.train_biased.ids))), self.train_biased

    def __post_init__(self) -> None:
        """Refuse data that could not prove anything: the bits themselves must say clean and biased."""
        for part in ("val", "test"):
            clean, biased = getattr(self, f"{part}_clean"), getattr(self, f"{part}_biased")
            check_bits(clean, biased)
            if self.is_inserted:
                check_same_images(clean, biased)
        if self.pairs is not None:
            check_bits(*self.pairs)
            check_same_images(*self.pairs)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How models are trained on a dataset and corrected: what the paper's appendix varies from one to the other."""

    epochs: Mapping[str, int]  # by model
    milestones: tuple[int, ...] = ()  # epochs after which the rate is divided by 10
    batch_size: int = 32
    fresh_rates: Mapping[str, float] = field(default_factory=dict)  # Adam's first rate where training starts from
    # random weights, by model; the paper starts from pretrained ones, with the rates of its architectures
    correction_rates: Mapping[str, float] = field(default_factory=dict)  # by model, where it is not 1e-4


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper reports for a dataset: by model and method (tables 1, A.3 to A.6)."""

    scores: Mapping[tuple[str, str, str], tuple[float, float]]  # (model, method, metric): value, standard error
    strengths: Mapping[tuple[str, str], float]  # (model, method)
    seconds: Mapping[tuple[str, str], tuple[float, float]]  # (model, method): per epoch, standard error

    @classmethod
    def read(cls, scores: str, *, strengths: str, seconds: str) -> Published:
        """Read tables typed as in the paper: a line per model and method; accuracies, TCAV and relevance in %.

        Args:
            scores: ``model method`` and then value and error of clean, biased, TCAV, 1000 x sensitivity, relevance;
                ``-`` where the paper has none.
            strengths: ``model method strength``.
            seconds: ``model method seconds error``.
        """
        found: dict[tuple[str, str, str], tuple[float, float]] = {}
        for model, method, *numbers in map(str.split, scores.strip().splitlines()):
            for metric, value, error in zip(PUBLISHED_METRICS, numbers[::2], numbers[1::2], strict=True):
                if value != "-":
                    unit = 1000 if metric == "tcav_sensitivity" else 100
                    found[model, method, metric] = (float(value) / unit, float(error) / unit)
        return cls(
            scores=found,
            strengths={(a, b): float(value) for a, b, value in map(str.split, strengths.strip().splitlines())},
            seconds={(a, b): (float(v), float(e)) for a, b, v, e in map(str.split, seconds.strip().splitlines())},
        )


class Study(Registered, ABC):
    """A dataset and its bias. A member says where the files are, what the classes mean, and how the bias comes in.

    Args:
        root: folder of the dataset's files in their official layout; the embedded world needs none.
        artifact: one of ``artifacts``; None is the first, the paper's own.
        size: side of the images in pixels; None is ``default_size``.
        seed: of splits and of which images carry the artifact.
        skip_bad: leave out images that are missing or cannot be read, and record them in ``skipped``; otherwise the
            first one is an error. All others keep their part, and each bad one moves the artifact of one other at most.
        progress: shows how far long work is, first the check of all files.
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

    def marked(self, model: str) -> tuple[ExampleSet, ExampleSet, ExampleSet] | None:
        """Return training, validation and test images with their bits, where the artifact is in them by nature."""
        return None

    def flags(self) -> dict[str, np.ndarray]:
        """Return what else is known of the test images, a bit each: artifacts that they carry by nature."""
        return {}
