"""Whether the classes stand in the order of the model's outputs: the model knows numbers, not names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from hansfree.datasets import ExampleSet, Part
from hansfree.metrics import chance_level, predict_classes
from hansfree.models import predict_logits
from hansfree.progress import Progress, silent

_TRIED = 128  # images before a run: a few seconds, and enough to tell an order
_BATCH = 16
_CLEARLY = 0.2  # of balanced accuracy: more than a bias between two classes makes
_NEARLY = 0.1  # of the way from chance to all right: below that a model knows next to nothing


@dataclass(frozen=True)
class Doubt:
    """Why a model's answers look wrong on images without the artifact."""

    sentence: str
    is_order: bool  # another order of the classes would suit far better; else the model is at chance in any


@dataclass(frozen=True)
class Asked:
    """What a model answers about a few images before a run."""

    sentence: str
    doubt: Doubt | None


def ask_model(model: nn.Module, images: ExampleSet, *, progress: Progress = silent) -> Asked:
    """Ask the model about clean validation images, as many of each class, and say what :func:`doubt_order` finds."""
    each = max(1, _TRIED // len(images.class_names))
    tried = np.concatenate([np.flatnonzero(images.labels == label)[:each] for label in np.unique(images.labels)])
    if len(tried) > _TRIED:  # of more classes
        tried = tried[np.linspace(0, len(tried) - 1, _TRIED).round().astype(int)]
    asked = Part(images, tried)
    answers = predict_classes(predict_logits(model, asked, batch_size=_BATCH, progress=progress).astype(np.float64))
    where = f"{len(asked)} clean validation images"
    numbers = np.arange(len(images.class_names))
    right = _accuracy(_answered(answers, asked.labels, len(numbers)), numbers)
    return Asked(
        f"a balanced accuracy of {100 * right:.1f} % on {where}",
        doubt_order(answers, asked.labels, images.class_names, where=where),
    )


def doubt_order(
    answers: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *, where: str = "clean test images"
) -> Doubt | None:
    """Say that the classes are likely in the wrong order, and which order the answers fit; None where all is well.

    A model is doubted that is hardly better than chance on clean images, or that another order would suit far better.
    The first may be the shortcut's own doing: one that names a class only with the artifact never names it here.

    Args:
        answers: the number of the largest output, per clean image; negative where there is none.
        labels: the number of the image's class, as the names are ordered now.
        where: what the images are.
    """
    numbers = np.arange(len(class_names))
    # Found on every other image and tried on the rest, as among many orders one always fits by luck.
    order = _best_order(_answered(answers[::2], labels[::2], len(numbers)))
    unseen = _answered(answers[1::2], labels[1::2], len(numbers))
    now, chance = _accuracy(_answered(answers, labels, len(numbers)), numbers), chance_level(labels)
    best = _accuracy(unseen, order)
    is_far = best - _accuracy(unseen, numbers) >= _CLEARLY
    is_near = now - 2 * _standard_error(now, labels[answers >= 0]) <= chance + _NEARLY * (1 - chance)
    if not (is_near or is_far):
        return None
    told = (
        f"The model as it came has a balanced accuracy of {100 * now:.1f} % on {where}, where chance has "
        f"{100 * chance:.1f} %."
    )
    if is_far:
        names = ", ".join(class_names[number] for number in order)
        return Doubt(
            f"{told} Most likely data.classes is not in the order of the model's outputs: [{names}] would give "
            f"{100 * best:.1f} %.",
            is_order=True,
        )
    return Doubt(
        f"{told} That is hardly better than guessing. Look whether it is the trained model, whether it gets its images "
        "as in training (data.size, resize, mean, std), and whether data.classes is in the order of its outputs.",
        is_order=False,
    )


def _answered(answers: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return for each class (row) which part of its answered images gets each answer (column)."""
    is_answered = answers >= 0
    places = classes * labels[is_answered] + answers[is_answered]
    counts = np.bincount(places, minlength=classes**2).reshape(classes, classes)
    rates: np.ndarray = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    return rates


def _standard_error(accuracy: float, labels: np.ndarray) -> float:
    """Return that of a balanced accuracy, as if every class were as easy: one image of a class shows no spread."""
    counts = np.unique(labels, return_counts=True)[1]
    return math.sqrt(accuracy * (1 - accuracy) * (1 / counts).sum()) / max(1, len(counts))


def _best_order(rates: np.ndarray) -> np.ndarray:
    """Return the class of each output that makes the most answers right."""
    from scipy.optimize import linear_sum_assignment  # here, as it is asked for once in a run

    outputs, order = linear_sum_assignment(rates.T, maximize=True)
    found: np.ndarray = order[np.argsort(outputs)]
    return found


def _accuracy(rates: np.ndarray, order: np.ndarray) -> float:
    """Return the balanced accuracy where output ``j`` means the class ``order[j]``."""
    present = np.count_nonzero(rates.any(axis=1))
    return float(rates[order, np.arange(len(order))].sum() / max(1, present))
