"""Choose among corrected networks without true insertion, on validation images with artifact labels.

There are two kinds of evidence. *Transplants*: the artifact is cut from held-out images and inserted into others, and
flips are counted. *Association*: the correlation of the logits with what the artifact says about the class, within
classes. It is positive for a model that uses the artifact, near zero for one that ignores it, and negative after too
strong a correction. It serves where every class has images with and without the artifact, and where no transplant
carries the artifact.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import Dataset

from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import Measured, find_insertion
from hansfree.corrections.deep.stages import find_stages
from hansfree.errors import DataError

Evidence = Literal["transplants", "association"]
BUDGET = 0.02  # of balanced accuracy on non-artifact images that a correction may cost


@dataclass(frozen=True)
class ValidationScore:
    """What a network does on validation images.

    Args:
        clean: balanced accuracy: on images without the artifact for transplants, else over all images, weighted so that
            the artifact is independent of the class.
        biased: balanced accuracy with the artifact transplanted into the images without it; None for association.
        effect: the flip rate for transplants, else the correlation within classes.
        lost_classes: classes that are never predicted although there are images of them.
    """

    evidence: Evidence
    clean: float
    biased: float | None
    effect: float
    lost_classes: tuple[int, ...]


class DeepValidation:
    """Score networks on validation images, by the evidence that these allow.

    Args:
        model: the original model, which the artifact is located with.
        train: training images, (image, label, has_artifact); the insertion is fitted on them.
        validation: held-out images of the same kind, which are pasted onto and cut from.
    """

    def __init__(self, model: nn.Module, train: Dataset[Any], validation: Dataset[Any], *, seed: int = 0) -> None:
        known, self.images = TrainingImages(train), TrainingImages(validation)
        self.insertions: dict[int, Measured] = {}
        self.pairs: dict[int, tuple[np.ndarray, Tensor]] = {}
        if not known.has_counterexamples().all():
            self._transplant(copy.deepcopy(model).eval(), known, seed)
        self.prior = None if self.pairs else _class_prior(known, self.images)

    def _transplant(self, network: nn.Module, known: TrainingImages, seed: int) -> None:
        """Insert the artifacts that a transplant carries into the validation images."""
        stages = find_stages(network, known.batch([0, 1]).to(next(network.parameters()).device))
        for artifact in sorted({group.artifact for group in known.groups()}):
            self.insertions[artifact] = measured = find_insertion(network, known, stages, artifact)
            if measured.is_usable and self.images.artifacts[:, artifact].any():
                rng = np.random.default_rng((seed, artifact))
                self.pairs[artifact] = self._pair(network, artifact, measured, rng)

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
        logits = _logits(network, [self.images.batch(rows) for rows in batches])
        labels, predicted = self.images.classes, self._predicted(logits)
        lost = tuple(int(label) for label in np.unique(labels) if not (predicted == label).any())
        if self.prior is not None:
            clean = balanced_accuracy(predicted, labels, self.images.task_weights())
            return ValidationScore("association", clean, None, _correlation(logits, self.prior, labels), lost)
        accuracies, flips, plain = [], [], np.logical_not(self.images.artifacts.any(axis=1))
        for rows, inserted in self.pairs.values():
            answers = self._predicted(_logits(network, list(torch.split(inserted, 64))))
            accuracies.append(balanced_accuracy(answers, labels[rows]))
            flips.append(float((answers != predicted[rows]).mean()))
        return ValidationScore(
            "transplants",
            balanced_accuracy(predicted[plain], labels[plain]),
            float(np.mean(accuracies)),
            float(np.mean(flips)),
            lost,
        )

    def _predicted(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted class; for rows of labels the place of the predicted row, -1 where no image has it."""
        if self.images.labels.ndim == 1:
            predicted: np.ndarray = np.argmax(logits, axis=1)
            return predicted
        rows = np.unique(self.images.labels, axis=0)
        is_same = ((logits > 0)[:, None] == (rows > 0)).all(-1)
        return np.where(is_same.any(1), is_same.argmax(1), -1)


def choose_candidate(
    scores: Sequence[ValidationScore], original: ValidationScore, *, budget: float = BUDGET
) -> int | None:
    """Return the index of the best candidate, or None where none is better than the original.

    A candidate that loses a class is never chosen, nor, by transplants, one that costs more than ``budget`` of clean
    accuracy. Among the others, accuracy (clean, or the mean of clean and biased) less the size of the effect decides:
    accuracies over few images of rare classes are noisy, effects are less so.
    """
    admissible = [index for index, score in enumerate(scores) if set(score.lost_classes) <= set(original.lost_classes)]
    if original.evidence == "transplants":
        admissible = [index for index in admissible if scores[index].clean >= original.clean - budget]
    best = max(admissible, key=lambda index: _merit(scores[index]), default=None)
    if best is None or _merit(scores[best]) <= _merit(original):
        return None
    return best


def balanced_accuracy(predicted: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the mean over the classes of the share of right predictions, on request with weighted images."""
    weights = np.ones(len(labels)) if weights is None else weights
    inside = [labels == label for label in np.unique(labels)]
    return float(
        np.mean(
            [
                np.average(predicted[rows] == label, weights=weights[rows])
                for rows, label in zip(inside, np.unique(labels))
            ]
        )
    )


def _merit(score: ValidationScore) -> float:
    accuracy = score.clean if score.biased is None else (score.clean + score.biased) / 2
    return accuracy - abs(score.effect)


def _class_prior(train: TrainingImages, validation: TrainingImages) -> np.ndarray:
    """Return what the artifacts of each validation image say about the class: log odds learned from training labels."""
    if train.labels.ndim > 1:
        raise DataError("Corrections of a multi-label model cannot be compared: no transplant carries the artifact.")
    if not validation.groups():
        raise DataError(
            "Corrections cannot be compared: no transplant carries the artifact, and no class has enough validation "
            "images both with and without it."
        )
    odds = LogisticRegression().fit(train.artifacts, train.classes).decision_function(validation.artifacts)
    return np.stack([-odds, odds], axis=1) / 2 if odds.ndim == 1 else odds


def _correlation(logits: np.ndarray, prior: np.ndarray, labels: np.ndarray) -> float:
    """Return the correlation of the logits with the prior log odds, within the classes in which the latter vary."""
    varies = [label for label in np.unique(labels) if np.ptp(prior[labels == label]) > 0]
    inside = np.isin(labels, varies)
    logits, prior, labels = logits[inside], prior[inside], labels[inside]
    centred = []
    for values in (logits, prior):
        values = values - values.mean(axis=1, keepdims=True)  # a constant over the classes changes no prediction
        means = np.stack([values[labels == label].mean(axis=0) for label in np.unique(labels)])
        centred.append(values - means[np.searchsorted(np.unique(labels), labels)])
    own, expected = centred
    return float((own * expected).sum() / max(np.linalg.norm(own) * np.linalg.norm(expected), 1e-12))


@torch.no_grad()
def _logits(network: nn.Module, batches: Sequence[Tensor]) -> np.ndarray:
    """Return the logits (n, classes); a single logit becomes two that differ by it."""
    device = next(network.parameters()).device
    logits = torch.cat([network(batch.to(device)).cpu() for batch in batches]).numpy()
    logits = logits.reshape(len(logits), -1)
    return np.concatenate([-logits, logits], axis=1) / 2 if logits.shape[1] == 1 else logits
