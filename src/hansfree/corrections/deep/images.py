"""Training images for corrections of the whole network: labels, artifact labels, and which images the loss may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from hansfree.activations.loading import read_batches
from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError
from hansfree.fingerprints import fingerprint

MIN_GROUP = 8  # fewer images say too little about the mean features of a group
MAX_REPEATS = 10.0  # of one image per epoch: more is memorised


class Group(NamedTuple):
    """The images of one class with and without one artifact; either may carry other artifacts."""

    artifact: int
    label: int
    with_it: np.ndarray
    without: np.ndarray


class TrainingImages:
    """Any dataset of (image, label, has_artifact), with its labels read once.

    A label is a class, or a row of 0 and 1 for a multi-label model. An artifact label is one truth value, or a row of
    them for several artifacts.
    """

    def __init__(self, images: Dataset[Any], *, workers: int = 0) -> None:
        if not isinstance(images, Dataset) or not hasattr(images, "__len__"):
            raise DataError(f"Give a torch dataset with a length, not {type(images).__name__}.")
        if len(images) == 0:
            raise DataError("There are no images in the dataset.")
        self.dataset, self.workers = images, workers
        if isinstance(images, ExampleSet):
            labels, has_artifact, key = images.labels, images.has_artifact, images.fingerprint
        else:
            labels, has_artifact = self._read_labels()
            key = type(images).__qualname__
        self.labels = np.asarray(labels)
        self.artifacts = np.asarray(has_artifact, dtype=bool).reshape(len(self.labels), -1)
        self.fingerprint = fingerprint(key, self.labels, self.artifacts)
        _, self.classes = np.unique(self.labels, axis=0, return_inverse=True)
        self.classes = self.classes.reshape(-1)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Return some images as one tensor."""
        if isinstance(self.dataset, ExampleSet):
            return self.dataset.batch(rows).image
        return torch.stack([torch.as_tensor(self.dataset[int(row)][0]) for row in rows])

    def batches(self, rows: Sequence[np.ndarray]) -> Iterator[Tensor]:
        """Yield the images of each list of rows; with ``workers``, other processes read ahead."""
        if self.workers == 0:
            yield from map(self.batch, rows)
            return
        loader = DataLoader(
            _ImagesOnly(self.dataset),
            batch_sampler=[each.tolist() for each in rows],
            num_workers=self.workers,
            generator=torch.Generator().manual_seed(0),
        )
        yield from read_batches(loader)

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

    def has_counterexamples(self) -> np.ndarray:
        """Return for each artifact whether every class has images enough with and without it."""
        inside = [self.classes == label for label in np.unique(self.classes)]
        counts = [(self.artifacts[rows] == value).sum(axis=0) for rows in inside for value in (False, True)]
        return np.array([min(each) >= MIN_GROUP for each in zip(*counts)])

    def task_weights(self) -> np.ndarray:
        """Return how often each image is drawn for the task loss, in relation to the others; they sum to 1.

        An artifact that some class lacks would tell the class, so its images are left out (weight 0). Where every class
        has images with and without each artifact, images are drawn so that the artifact is independent of the class.
        Classes count the same.
        """
        labels = np.unique(self.classes)
        has_counterexamples = self.has_counterexamples()
        confined = self.artifacts[:, ~has_counterexamples].any(axis=1)
        weights = np.where(confined, 0.0, 1.0)
        if not all(weights[self.classes == label].any() for label in labels):
            raise DataError("A class has no image without the artifact, so there is nothing to train it on.")
        for _ in range(50):  # iterative proportional fitting
            for artifact in np.flatnonzero(has_counterexamples):
                _make_independent(weights, self.classes, self.artifacts[:, artifact])
            for label in labels:
                inside = self.classes == label
                weights[inside] /= weights[inside].sum() * len(labels)
            weights = np.minimum(weights, MAX_REPEATS / len(self))
        weights /= weights.sum()
        return weights

    def _read_labels(self) -> tuple[np.ndarray, np.ndarray]:
        labels, bits = [], []
        for rows in np.array_split(np.arange(len(self.dataset)), max(1, len(self.dataset) // 64)):
            example = default_collate([self.dataset[int(row)] for row in rows])
            if not isinstance(example, tuple | list) or len(example) < 3:
                raise DataError("Each image must come as (image, label, has_artifact).")
            labels.append(np.asarray(example[1]))
            bits.append(np.asarray(example[2]))
        return np.concatenate(labels), np.concatenate(bits)


class _ImagesOnly(Dataset[Tensor]):
    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __getitem__(self, index: int) -> Tensor:
        return torch.as_tensor(self.dataset[index][0])


def _make_independent(weights: np.ndarray, classes: np.ndarray, has_artifact: np.ndarray) -> None:
    """Scale the weights in place so that each class has the same share of the artifact: the mean over the classes."""
    inside = [classes == label for label in np.unique(classes)]
    shares = [weights[rows & has_artifact].sum() / weights[rows].sum() for rows in inside]
    wanted = float(np.mean(shares))
    for rows, share in zip(inside, shares):
        weights[rows & has_artifact] *= wanted / share
        weights[rows & ~has_artifact] *= (1 - wanted) / (1 - share)
