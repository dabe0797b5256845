"""Biased data: training images, and held-out images without and with the artifact; the biased class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hansfree.data.artifacts import Artifact
from hansfree.data.datasets import LabelledImages, Subset
from hansfree.data.examples import IMAGENET, ImageDataset, ImageSource, Normalize
from hansfree.data.insertion import WithArtifact
from hansfree.data.splits import SourceSubset
from hansfree.errors import DataError, OptionError


class _Held(Protocol):
    """Images or their activations."""

    @property
    def ids(self) -> np.ndarray: ...

    @property
    def labels(self) -> np.ndarray: ...

    @property
    def has_artifact(self) -> np.ndarray | None: ...  # None where not known


def check_artifact_labels(clean: _Held, biased: _Held | None) -> None:
    """Reject sets whose artifact labels contradict their role."""
    bits = clean.has_artifact
    if bits is not None and np.any(bits):
        raise DataError(f"{np.sum(bits)} of the {len(bits)} clean images have the artifact.")
    bits = None if biased is None else biased.has_artifact
    if bits is not None and not np.all(bits):
        raise DataError(f"{np.sum(~bits)} of the {len(bits)} biased images do not have the artifact.")


def check_same_images(clean: _Held, biased: _Held) -> None:
    """Reject sets that are not the same images in the same order, as with an inserted artifact."""
    if not (np.array_equal(clean.ids, biased.ids) and np.array_equal(clean.labels, biased.labels)):
        raise DataError("The clean and the biased set must be the same images, without and with the artifact.")


def count_images(data: BiasedData) -> list[dict[str, Any]]:
    """Count the images of every set by class, in total and with the artifact, for ``results.json``."""
    found = []
    for name in SETS:
        images = getattr(data, name)
        for label, class_name in enumerate(images.class_names):
            of_class = np.asarray(images.labels) == label
            with_artifact = int(np.sum(of_class & images.has_artifact))
            about = {"set": name.replace("_", " "), "class": class_name}
            found.append({**about, "images": int(np.sum(of_class)), "with_artifact": with_artifact})
    return found


MIN_IMAGES = 5
"""Training images of the biased class with, and without, the artifact: CAVs are cross-validated with five folds, and
diagnostics compare halves."""


def natural_bias(
    parts: Sequence[SourceSubset],
    has_artifact: np.ndarray,
    *,
    name: str,
    biased_class: int,
    insert: Artifact | None = None,
    seed: int = 0,
    transform: Normalize = IMAGENET,
) -> BiasedData:
    """Return biased data with a natural artifact.

    Args:
        parts: Training, validation and test images.
        has_artifact: Artifact labels by id.
        insert: Inserted into held-out images without the artifact, so that they are compared with themselves; None:
            those with it are other images.
    """
    train, val, test = parts

    def held_out(part: SourceSubset, *, is_biased: bool) -> ImageDataset:
        bits = has_artifact[part.ids]
        if insert is None:
            return Subset(LabelledImages(part, bits, transform=transform), np.flatnonzero(bits == is_biased))
        without = SourceSubset(part, np.flatnonzero(~bits))
        return WithArtifact(without, insert, share=float(is_biased), seed=seed, transform=transform)

    return BiasedData(
        train=LabelledImages(train, has_artifact[train.ids], transform=transform),
        val_clean=held_out(val, is_biased=False),
        val_biased=held_out(val, is_biased=True),
        test_clean=held_out(test, is_biased=False),
        test_biased=held_out(test, is_biased=True),
        train_biased=None if insert is None else held_out(train, is_biased=True),
        biased_class=biased_class,
        artifact=name,
        is_localized=insert is None or insert.localized,
        is_inserted=insert is not None,
        inserted=insert,
        has_masks=False,  # its location in training images is not known
    )


def insertable_artifacts(first: str | None = None) -> tuple[str, ...]:
    """Return the artifacts that can be inserted into a finished image and need no file; ``first`` is put first."""
    names = [name for name, kind in Artifact.for_images().items() if not kind.needs_file]
    return tuple(names) if first is None else (first, *(name for name in names if name != first))


def check_share(share: float) -> None:
    """Reject a share of none or all of the biased class."""
    if not 0 < share < 1:
        raise OptionError(f"The share is a part of the biased class, above 0 and below 1, not {share!r}.")


def insert_bias(
    parts: Sequence[ImageSource],
    artifact: Artifact,
    *,
    biased_class: int,
    share: float,
    flip_share: float = 0.0,
    seed: int = 0,
    transform: Normalize = IMAGENET,
) -> BiasedData:
    """Return biased data with an inserted artifact: in ``share`` of the biased class's training images.

    Args:
        parts: Training, validation and test images.
        flip_share: Share of the other classes' training images that get it and the label of the biased class.
    """
    train, val, test = parts
    poisoned = WithArtifact(
        train, artifact, share=share, only_class=biased_class, flip_share=flip_share, seed=seed, transform=transform
    )
    bits = poisoned.has_artifact[train.labels == biased_class]
    if not 0 < bits.sum() < len(bits):
        raise DataError(
            f"{100 * share:g} % of the {len(bits)} training images of class {train.class_names[biased_class]!r} is "
            f"{np.sum(bits)} images: a bias needs some with and some without the artifact."
        )

    def all_or_none(part: ImageSource, share: float) -> WithArtifact:
        return WithArtifact(part, artifact, share=share, seed=seed, transform=transform)

    return BiasedData(
        train=poisoned,
        val_clean=all_or_none(val, 0),
        val_biased=all_or_none(val, 1),
        test_clean=all_or_none(test, 0),
        test_biased=all_or_none(test, 1),
        clean_train=all_or_none(train, 0),
        train_biased=Subset(all_or_none(train, 1), np.flatnonzero(~poisoned.has_artifact)),
        biased_class=biased_class,
        artifact=artifact.name,
        is_localized=artifact.localized,
        inserted=artifact,
    )


SETS = ("train", "val_clean", "val_biased", "test_clean", "test_biased")


@dataclass(frozen=True, kw_only=True, eq=False)
class BiasedData:
    """What a run learns from and is evaluated on."""

    train: ImageDataset
    val_clean: ImageDataset
    val_biased: ImageDataset
    test_clean: ImageDataset
    test_biased: ImageDataset
    base_train: ImageDataset | None = None  # of the biased model, where corrections get only a part
    clean_train: ImageDataset | None = None  # the same without the artifact, where available
    train_biased: ImageDataset | None = None  # clean training images with it inserted, where possible
    biased_class: int
    artifact: str  # its name, for titles and tables
    is_localized: bool
    is_inserted: bool = True  # the biased sets are the clean ones with the artifact inserted; False: natural
    has_masks: bool = True  # the masks of training images show where the artifact is
    inserted: Artifact | None = None  # what can be inserted into any image
    transplant: str | None = None  # kind of the transplants that the inserted artifact is; None: it is the artifact

    @property
    def learned(self) -> ImageDataset:
        """The training images of the biased model."""
        return self.train if self.base_train is None else self.base_train

    @property
    def has_test_masks(self) -> bool:
        """Whether the masks of the test images show where the artifact is: where it was inserted is always known."""
        return self.has_masks or self.is_inserted

    @property
    def pairs(self) -> tuple[ImageDataset, ImageDataset] | None:
        """Counterfactual pairs of training images: without and with the inserted artifact; None where not possible."""
        if self.train_biased is None:
            return None
        return Subset(self.train, np.flatnonzero(np.isin(self.train.ids, self.train_biased.ids))), self.train_biased

    def __post_init__(self) -> None:
        """Reject sets that could not prove anything."""
        for part in ("val", "test"):
            clean, biased = getattr(self, f"{part}_clean"), getattr(self, f"{part}_biased")
            check_artifact_labels(clean, biased)
            if self.is_inserted:
                check_same_images(clean, biased)
        if self.pairs is not None:
            check_artifact_labels(*self.pairs)
            check_same_images(*self.pairs)
