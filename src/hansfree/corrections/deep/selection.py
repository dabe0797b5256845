"""Choose among corrected networks without true insertion, on validation images with artifact labels.

There are two kinds of evidence. *Transplants*: the artifact is cut from held-out images and inserted into others, and
flips are counted. *Association*: the correlation of the logits with what the artifact says about the class, within
classes. It is positive for a model that uses the artifact, near zero for one that ignores it, and negative after too
strong a correction. It serves where every class has images with and without the artifact, and where no transplant
carries the artifact.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import Dataset

from hansfree.corrections.deep.images import TrainingImages, independent_weights, split_rows
from hansfree.corrections.deep.insertion import Insertion, Measured, find_insertion, from_bytes, to_bytes
from hansfree.corrections.deep.stages import find_stages
from hansfree.errors import DataError, UndefinedMetricError

Evidence = Literal["transplants", "association"]
BUDGET = 0.02  # of balanced accuracy on non-artifact images that a correction may cost
# What an effect of 1 costs in accuracy. Accuracy under transplants already counts the flips that do harm.
EFFECT_COST: dict[Evidence, float] = {"transplants": 0.1, "association": 1.0}
TOLERANCE = 0.02  # of merit: about a standard error of balanced accuracy on a few hundred images


@dataclass(frozen=True)
class ValidationScore:
    """What a network does on validation images.

    Args:
        clean: balanced accuracy: on images without the artifact; for an artifact that is spread over all classes, over
            all images, weighted so that it is independent of the class.
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

    Artifacts that are spread over all classes are judged by association, and then those that are not spread stay
    unjudged. Else artifacts are judged by transplants; if no transplant carries any, by association within the classes
    that have images with and without them.

    Args:
        model: the original model, which the artifact is located with.
        train: (image, label, has_artifact); the insertion is fitted on them.
        validation: held-out images of the same kind, which are pasted onto and cut from.
        transplants: False judges by association only.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Dataset[Any],
        validation: Dataset[Any],
        *,
        transplants: bool = True,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        known, self.images = TrainingImages.of(train), TrainingImages.of(validation)
        self.device = device
        self.insertions: dict[int, Measured] = {}
        self.pairs: dict[int, _Pairs] = {}
        everything = np.arange(known.artifacts.shape[1])
        judged = np.flatnonzero(known.is_spread)
        if len(judged) == 0:
            if transplants:
                self._transplant(copy.deepcopy(model).eval().to(device), known, seed)
            judged = np.array(sorted(self.pairs) or everything)
        self.unjudged = tuple(int(each) for each in np.setdiff1d(everything, judged))  # the scores do not show them
        self.prior = None if self.pairs else _ClassPrior(known, self.images, judged)

    def _transplant(self, network: nn.Module, known: TrainingImages, seed: int) -> None:
        """Find the artifacts that a transplant carries, and what is pasted where."""
        stages = find_stages(network, known.batch([0, 1]).to(self.device))
        for artifact in sorted({group.artifact for group in known.groups()}):
            self.insertions[artifact] = measured = find_insertion(network, known, stages, artifact)
            has_artifact = self.images.artifacts[:, artifact]
            if not measured.is_usable or not has_artifact.any():
                continue
            rows, donors = np.flatnonzero(~has_artifact), np.flatnonzero(has_artifact)
            donors = np.random.default_rng((seed, artifact)).choice(donors, len(rows))
            masks = [to_bytes(measured.insertion.masks(network, batch)) for batch in self.images.all_batches(donors)]
            self.pairs[artifact] = _Pairs(measured.insertion, rows, donors, torch.cat(masks))

    def score(self, model: nn.Module) -> ValidationScore:
        """Return what the model does with and without the artifact; it is not changed."""
        network = copy.deepcopy(model).eval().to(self.device)
        everything = np.arange(len(self.images))
        logits = self._logits(network, self.images.all_batches(everything))
        labels, predicted = self._labels(), self._predicted(logits)
        lost = tuple(int(label) for label in np.unique(labels) if not (predicted == label).any())
        if self.prior is not None:
            clean = balanced_accuracy(predicted, labels, self.prior.weights)
            return ValidationScore("association", clean, None, self.prior.correlation(logits, labels), lost)
        accuracies, flips, plain = [], [], ~self.images.artifacts.any(axis=1)
        for pairs in self.pairs.values():
            answers = self._predicted(self._logits(network, pairs.inserted(self.images)))
            accuracies.append(balanced_accuracy(answers, labels[pairs.rows]))
            flips.append(float((answers != predicted[pairs.rows]).mean()))
        clean = balanced_accuracy(predicted[plain], labels[plain])
        return ValidationScore("transplants", clean, float(np.mean(accuracies)), float(np.mean(flips)), lost)

    @torch.no_grad()
    def _logits(self, network: nn.Module, batches: Iterable[Tensor]) -> np.ndarray:
        """Return the logits (n, classes); a single logit becomes two that differ by it."""
        logits: np.ndarray = torch.cat([network(batch.to(self.device)).cpu() for batch in batches]).numpy()
        logits = logits.reshape(len(logits), -1)
        return np.concatenate([-logits, logits], axis=1) / 2 if logits.shape[1] == 1 else logits

    def _labels(self) -> np.ndarray:
        """Return the classes as the model numbers them; for rows of labels the place of the row."""
        return self.images.labels.astype(np.int64) if self.images.labels.ndim == 1 else self.images.classes

    def _predicted(self, logits: np.ndarray) -> np.ndarray:
        """Return the predicted class; for rows of labels the place of the predicted row, -1 where no image has it."""
        if self.images.labels.ndim == 1:
            predicted: np.ndarray = np.argmax(logits, axis=1)
            return predicted
        rows = np.unique(self.images.labels, axis=0)
        is_same = ((logits > 0)[:, None] == (rows > 0)).all(-1)
        return np.where(is_same.any(1), is_same.argmax(1), -1)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Which images get the artifact of which others."""

    insertion: Insertion
    rows: np.ndarray
    donors: np.ndarray
    masks: Tensor

    def inserted(self, images: TrainingImages) -> Iterator[Tensor]:
        """Yield the images with the artifact, in batches."""
        places = split_rows(np.arange(len(self.rows)))
        both = zip(images.all_batches(self.rows), images.all_batches(self.donors))
        for number, (place, (own, other)) in enumerate(zip(places, both)):
            yield self.insertion.insert(own, other, from_bytes(self.masks[place]), seed=number)


class _ClassPrior:
    """What the artifacts of validation images say about the class, as log odds learned from training labels."""

    def __init__(self, train: TrainingImages, validation: TrainingImages, judged: np.ndarray) -> None:
        if train.labels.ndim > 1:
            raise DataError("Corrections of a multi-label model can only be compared where a transplant is usable.")
        if not any(group.artifact in judged for group in validation.groups()):
            raise DataError(
                "Corrections cannot be compared: no transplant carries the artifact, and no class has enough "
                "validation images both with and without it."
            )
        fitted = LogisticRegression().fit(train.artifacts[:, judged], train.labels)
        odds = fitted.decision_function(validation.artifacts[:, judged])
        self.odds = np.stack([-odds, odds], axis=1) / 2 if odds.ndim == 1 else odds
        self.columns = fitted.classes_.astype(np.int64)
        artifacts = validation.artifacts[:, judged]
        start = np.ones(len(validation))
        if not train.is_spread[judged].all():  # images with the artifact are of one class
            start = np.where(artifacts.any(axis=1), 0.0, 1.0)
        self.weights = independent_weights(start, validation.classes, artifacts)

    def correlation(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """Return the correlation of the logits with the log odds, within the classes in which the latter vary."""
        odds = np.zeros_like(logits, dtype=np.float64)
        odds[:, self.columns] = self.odds
        varies = [label for label in np.unique(labels) if np.ptp(odds[labels == label], axis=0).any()]
        if not varies:
            return 0.0

        def centred(values: np.ndarray) -> np.ndarray:
            values = values - values.mean(axis=1, keepdims=True)  # a constant over the classes changes no prediction
            inside = (values[labels == label] for label in varies)
            return np.concatenate([each - each.mean(axis=0) for each in inside])

        own, expected = centred(logits), centred(odds)
        return float((own * expected).sum() / max(np.linalg.norm(own) * np.linalg.norm(expected), 1e-12))


def choose_candidate(
    scores: Sequence[ValidationScore],
    original: ValidationScore,
    *,
    budget: float = BUDGET,
    strengths: Sequence[tuple[str, float]] | None = None,
) -> int | None:
    """Return the index of the best candidate, or None where none is better than the original.

    A candidate that loses a class is never chosen, nor, by transplants, one that costs more than ``budget`` of clean
    accuracy. Among the others, accuracy (clean, or the mean of clean and biased) decides, less what the effect costs
    (``EFFECT_COST``).

    Args:
        strengths: method and strength of each candidate. Validation images say little about small differences, and
            they have the bias of the training images, so of those of the best one's method that are as good to within
            ``TOLERANCE`` the strongest is chosen.
    """
    if not np.isfinite([merit(score) for score in (*scores, original)]).all():
        raise UndefinedMetricError("A validation score is not finite, so the candidates cannot be compared.")
    admissible = [index for index, score in enumerate(scores) if set(score.lost_classes) <= set(original.lost_classes)]
    if original.evidence == "transplants":
        admissible = [index for index in admissible if scores[index].clean >= original.clean - budget]
    best = max(admissible, key=lambda index: merit(scores[index]), default=None)
    if best is None or merit(scores[best]) <= merit(original):
        return None
    if strengths is None:
        return best
    least = max(merit(scores[best]) - TOLERANCE, merit(original))
    as_good = [i for i in admissible if strengths[i][0] == strengths[best][0] and merit(scores[i]) >= least]
    return max(as_good, key=lambda index: strengths[index][1])


def balanced_accuracy(predicted: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the mean over the classes of the share of right predictions, on request with weighted images."""
    weights = np.ones(len(labels)) if weights is None else weights
    inside = {label: labels == label for label in np.unique(labels)}
    recalls = [np.average(predicted[rows] == label, weights=weights[rows]) for label, rows in inside.items()]
    return float(np.mean(recalls))


def merit(score: ValidationScore) -> float:
    """Return what candidates are ranked by: accuracy less the cost of the artifact's effect."""
    accuracy = score.clean if score.biased is None else (score.clean + score.biased) / 2
    return accuracy - EFFECT_COST[score.evidence] * abs(score.effect)
