"""Training images for corrections of the whole network: labels, artifact labels, and which images the loss may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from hansfree._internal.hashing import fingerprint
from hansfree.corrections.training import read_ahead
from hansfree.data import ImageDataset
from hansfree.errors import DataError

MIN_GROUP = 8  # fewer images say too little about the mean features of a group
# Fewer counter-examples in a class may be wrong artifact labels: either of these shares must be reached.
MIN_CLASS_SHARE = 0.1  # of the class
MIN_RELATIVE_SHARE = 0.5  # of the class, divided by the artifact's share over all images
MAX_REPEATS = 10.0  # of one image per epoch: more is memorised
BATCH = 64  # images of a pass without training


class Group(NamedTuple):
    """The images of one class with and without one artifact; either may carry other artifacts."""

    artifact: int
    label: int
    with_it: np.ndarray
    without: np.ndarray


class TrainingImages:
    """Any dataset of (image, label, has_artifact), with its labels read once.

    A label is a class, or a row of 0 and 1 for a multi-label model; then each combination counts as a class. An
    artifact label is one truth value, or a row of them for several artifacts. The dataset must return the same image
    each time.
    """

    def __init__(self, images: Dataset[Any], *, workers: int = 0) -> None:
        if not isinstance(images, Dataset) or not hasattr(images, "__len__"):
            raise DataError(f"Give a torch dataset with a length, not {type(images).__name__}.")
        if len(images) == 0:
            raise DataError("There are no images in the dataset.")
        self.dataset, self.workers = images, workers
        if isinstance(images, ImageDataset):
            labels, has_artifact, key = images.labels, images.has_artifact, images.fingerprint
        else:
            labels, has_artifact = self._read_labels()
            key = fingerprint(*self._same_twice())
        labels, has_artifact = np.asarray(labels), np.asarray(has_artifact)
        if not np.isin(has_artifact, (0, 1)).all():
            raise DataError("Artifact labels must be 0 or 1. Leave images with an unknown artifact label out.")
        self.labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        self.artifacts = has_artifact.astype(bool).reshape(len(labels), -1)
        self.fingerprint = fingerprint(key, self.labels, self.artifacts)
        _, classes = np.unique(self.labels, axis=0, return_inverse=True)
        self.classes = classes.reshape(-1)
        self.is_spread = _find_spread(self.classes, self.artifacts)

    @classmethod
    def of(cls, images: Dataset[Any] | TrainingImages, *, workers: int = 0) -> TrainingImages:
        """Return the images as they are where their labels have been read before."""
        return images if isinstance(images, TrainingImages) else cls(images, workers=workers)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Return some images as one tensor."""
        if isinstance(self.dataset, ImageDataset):
            return self.dataset.batch(rows).image
        return torch.stack([torch.as_tensor(self.dataset[int(row)][0]) for row in rows])

    def batches(self, rows: Sequence[np.ndarray]) -> Iterator[Tensor]:
        """Yield the images of each list of rows; with ``workers``, other processes read ahead."""
        if self.workers == 0:
            return map(self.batch, rows)
        return (batch[0] for batch in read_ahead(self.dataset, [each.tolist() for each in rows], self.workers))

    def all_batches(self, rows: np.ndarray) -> Iterator[Tensor]:
        """Yield these images in batches."""
        return self.batches(split_rows(rows))

    def groups(self) -> list[Group]:
        """Return every artifact and class that has images enough with and without the artifact to compare."""
        found = []
        for artifact in range(self.artifacts.shape[1]):
            has_artifact = self.artifacts[:, artifact]
            for label in np.unique(self.classes):
                inside = self.classes == label
                rows = np.flatnonzero(inside & has_artifact), np.flatnonzero(inside & ~has_artifact)
                if min(map(len, rows)) >= MIN_GROUP:
                    found.append(Group(artifact, int(label), *rows))
        return found

    def task_weights(self) -> np.ndarray:
        """Return how often each image is drawn for the task loss, in relation to the others; they sum to 1.

        An artifact that some class lacks would predict the class, so its images are left out (weight 0). An artifact
        that is spread over all classes (``is_spread``) becomes independent of the class. Classes count the same.
        """
        weights = np.where(self.artifacts[:, ~self.is_spread].any(axis=1), 0.0, 1.0)
        if not all(weights[self.classes == label].any() for label in np.unique(self.classes)):
            raise DataError("A class has no image without the artifact, so there is nothing to train it on.")
        return independent_weights(weights, self.classes, self.artifacts[:, self.is_spread], MAX_REPEATS)

    def _read_labels(self) -> tuple[np.ndarray, np.ndarray]:
        labels, bits = [], []
        for rows in split_rows(np.arange(len(self.dataset))):
            example = default_collate([self.dataset[int(row)] for row in rows])
            if not isinstance(example, tuple | list) or len(example) < 3:
                raise DataError("Each image must come as (image, label, has_artifact).")
            labels.append(np.asarray(example[1]))
            bits.append(np.asarray(example[2]))
        return np.concatenate(labels), np.concatenate(bits)

    def _same_twice(self) -> list[np.ndarray]:
        """Return a few images, which stand for all in the fingerprint; they must be the same when read again."""
        rows = np.unique(np.linspace(0, len(self.dataset) - 1, 8).astype(int))
        first, again = self.batch(rows), self.batch(rows)
        if not torch.equal(first, again):
            raise DataError("The dataset returns another image each time. Give one without random transforms.")
        return [first.numpy()]


def split_rows(rows: np.ndarray) -> list[np.ndarray]:
    """Return the rows in batches."""
    return np.array_split(rows, max(1, -(-len(rows) // BATCH)))


def independent_weights(
    weights: np.ndarray, classes: np.ndarray, artifacts: np.ndarray, max_repeats: float = np.inf
) -> np.ndarray:
    """Return weights with which each artifact is independent of the class and classes count the same.

    Iterative proportional fitting from the given weights. An artifact that all or none of a class has is left as it is.

    Args:
        artifacts: truth values, ``(images, artifacts)``.
        max_repeats: the largest weight, relative to the mean of those above zero; it can leave some dependence.
    """
    weights = weights.astype(np.float64)
    usable = np.count_nonzero(weights)
    inside = [classes == label for label in np.unique(classes)]
    for _ in range(50):
        for has_artifact in artifacts.T:
            shares = [weights[rows & has_artifact].sum() / weights[rows].sum() for rows in inside]
            if min(shares) <= 0 or max(shares) >= 1:
                continue
            wanted = float(np.mean(shares))
            for rows, share in zip(inside, shares):
                weights[rows & has_artifact] *= wanted / share
                weights[rows & ~has_artifact] *= (1 - wanted) / (1 - share)
        for rows in inside:
            weights[rows] /= weights[rows].sum() * len(inside)
        weights = np.minimum(weights, max_repeats / usable)
    is_free = weights < max_repeats / usable
    weights[is_free] *= (1 - weights[~is_free].sum()) / weights[is_free].sum()
    return weights


def _find_spread(classes: np.ndarray, artifacts: np.ndarray) -> np.ndarray:
    """Return for each artifact whether every class has images enough with and without it.

    Images with an artifact that is not spread are not used, so they do not count for the others.
    """
    inside = [classes == label for label in np.unique(classes)]
    overall = artifacts.mean(axis=0)
    spread = np.ones(artifacts.shape[1], dtype=bool)
    while True:
        usable = ~artifacts[:, ~spread].any(axis=1)
        enough = spread.copy()
        for rows in inside:
            share = np.minimum(MIN_CLASS_SHARE, MIN_RELATIVE_SHARE * overall)
            counts = artifacts[rows & usable].sum(axis=0)
            total = np.count_nonzero(rows & usable)
            enough &= (counts >= np.maximum(MIN_GROUP, share * total)) & (total - counts >= MIN_GROUP)
        if (enough == spread).all():
            return spread
        spread = enough
