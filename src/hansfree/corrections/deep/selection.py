"""Choose among corrected networks without true insertion, on validation images with artifact labels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hansfree.corrections.deep.images import MIN_GROUP, TrainingImages
from hansfree.corrections.deep.insertion import Measured, find_insertion
from hansfree.corrections.deep.stages import find_stages
from hansfree.errors import DataError

Evidence = Literal["transplants", "groups"]
BUDGET = 0.02  # of balanced accuracy on non-artifact images that a correction may cost


@dataclass(frozen=True)
class ValidationScore:
    """What a network does on validation images.

    Args:
        clean: balanced accuracy on images without the artifact.
        biased: balanced accuracy with the artifact transplanted into them; for ``groups``, over images that carry it.
        flip_rate: share of predictions that the transplant changes; None for ``groups``.
        lost_classes: classes that are never predicted although there are images of them.
    """

    clean: float
    biased: float
    flip_rate: float | None
    lost_classes: tuple[int, ...]
    evidence: Evidence


class DeepValidation:
    """Score networks by transplants from held-out artifact images onto validation images.

    Where no transplant carries the artifact, images that carry it by nature are scored, if every class has some.

    Args:
        model: the original model, which the artifact is located with.
        train: training images, (image, label, has_artifact); the insertion is fitted on them.
        validation: held-out images of the same kind, which are pasted onto and cut from.
    """

    def __init__(self, model: nn.Module, train: Dataset[Any], validation: Dataset[Any], *, seed: int = 0) -> None:
        network = copy.deepcopy(model).eval()
        known, self.images = TrainingImages(train), TrainingImages(validation)
        stages = find_stages(network, known.batch([0, 1]).to(next(network.parameters()).device))
        artifacts = sorted({group.artifact for group in known.groups()})
        self.insertions = {artifact: find_insertion(network, known, stages, artifact) for artifact in artifacts}
        self.pairs = {
            artifact: self._pair(network, artifact, measured, np.random.default_rng((seed, artifact)))
            for artifact, measured in self.insertions.items()
            if measured.is_usable and self.images.artifacts[:, artifact].any()
        }
        if not self.pairs and not self._has_counterexamples():
            raise DataError(
                "No transplant carries the artifact, and the validation images have too few counter-examples "
                f"(fewer than {MIN_GROUP} per class): corrections cannot be compared."
            )

    def _has_counterexamples(self) -> bool:
        return all(
            (self.images.artifacts[self.images.classes == label].sum(axis=0) >= MIN_GROUP).all()
            for label in np.unique(self.images.classes)
        )

    def _pair(
        self, network: nn.Module, artifact: int, measured: Measured, rng: np.random.Generator
    ) -> tuple[np.ndarray, Tensor]:
        """Return the rows without the artifact, and the same images with a transplant."""
        has_artifact = self.images.artifacts[:, artifact]
        rows, donors = np.flatnonzero(~has_artifact), np.flatnonzero(has_artifact)
        inserted = []
        for number, some in enumerate(np.array_split(rows, max(1, len(rows) // 64))):
            batch = self.images.batch(rng.choice(donors, len(some)))
            masks = measured.insertion.masks(network, batch)
            inserted.append(measured.insertion.insert(self.images.batch(some), batch, masks, seed=number))
        return rows, torch.cat(inserted)

    def score(self, model: nn.Module) -> ValidationScore:
        """Return what the model does with and without the artifact; it is not changed."""
        network = copy.deepcopy(model).eval()
        batches = np.array_split(np.arange(len(self.images)), max(1, len(self.images) // 64))
        predicted = _predict(network, [self.images.batch(rows) for rows in batches])
        labels = self.images.classes
        plain = np.logical_not(self.images.artifacts.any(axis=1))
        if len(np.unique(labels[plain])) < len(np.unique(labels)):
            plain[:] = True  # some class has only artifact images
        lost = tuple(int(label) for label in np.unique(labels) if not (predicted == label).any())
        clean = balanced_accuracy(predicted[plain], labels[plain])
        if not self.pairs:
            biased = self.images.artifacts.any(axis=1)
            return ValidationScore(clean, balanced_accuracy(predicted[biased], labels[biased]), None, lost, "groups")
        accuracies, flips = [], []
        for rows, inserted in self.pairs.values():
            answers = _predict(network, list(torch.split(inserted, 64)))
            accuracies.append(balanced_accuracy(answers, labels[rows]))
            flips.append(float((answers != predicted[rows]).mean()))
        return ValidationScore(clean, float(np.mean(accuracies)), float(np.mean(flips)), lost, "transplants")


def choose_candidate(
    scores: Sequence[ValidationScore], original: ValidationScore, *, budget: float = BUDGET
) -> int | None:
    """Return the index of the best candidate, or None where all are worse than the original.

    Admissible is what loses no class and at most ``budget`` of clean accuracy. Among those the mean of clean and biased
    accuracy, less the flip rate, decides: accuracies over few images of rare classes are noisy, flips are not.
    """
    admissible = [
        index
        for index, score in enumerate(scores)
        if set(score.lost_classes) <= set(original.lost_classes) and score.clean >= original.clean - budget
    ]
    best = max(admissible, key=lambda index: _merit(scores[index]), default=None)
    if best is None or _merit(scores[best]) <= _merit(original):
        return None
    return best


def balanced_accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean over the classes of the share of right predictions."""
    return float(np.mean([(predicted[labels == label] == label).mean() for label in np.unique(labels)]))


def _merit(score: ValidationScore) -> float:
    return (score.clean + score.biased) / 2 - (score.flip_rate or 0.0)


@torch.no_grad()
def _predict(network: nn.Module, batches: Sequence[Tensor]) -> np.ndarray:
    """Return the predicted class, the sign of a single logit, or the row of signs as a number."""
    device = next(network.parameters()).device
    logits = torch.cat([network(batch.to(device)).cpu() for batch in batches])
    if logits.ndim == 1 or logits.shape[1] == 1:
        return (logits.reshape(-1) > 0).long().numpy()
    return logits.argmax(1).numpy()
