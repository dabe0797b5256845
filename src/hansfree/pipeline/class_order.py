"""Whether classes and preprocessing of a run file are those of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import nn

from hansfree._internal.progress import Progress, silent
from hansfree.data import ImageDataset, ImageFiles, LabelledImages, Listing, Normalize, Resize, Subset
from hansfree.metrics import chance_level, predict_classes
from hansfree.models import Preprocessing, predict_logits

_TRIED = 128  # images before a run: a few seconds, and enough to find an order
_MEASURED = 256  # images that each way of resizing is measured on
_BATCH = 16
_CLEARLY = 0.2  # of balanced accuracy: more than a bias between two classes makes
_NEARLY = 0.1  # of the way from chance to all right: below that a model knows next to nothing


@dataclass(frozen=True)
class ClassOrderWarning:
    """Why a model's predictions look wrong on images without the artifact."""

    sentence: str
    is_order: bool  # another class order fits far better; else the model is at chance level


@dataclass(frozen=True)
class ClassOrderCheck:
    """What a model predicts for a few images before a run."""

    sentence: str
    doubt: ClassOrderWarning | None


def check_class_order(model: nn.Module, images: ImageDataset, *, progress: Progress = silent) -> ClassOrderCheck:
    """Check the class order on clean validation images, the same number of each class."""
    tried = _spread(images.labels, _TRIED)
    asked = Subset(images, tried)
    answers = predict_classes(predict_logits(model, asked, batch_size=_BATCH, progress=progress).astype(np.float64))
    where = f"{len(asked)} clean validation images"
    numbers = np.arange(len(images.class_names))
    right = _accuracy(_answered(answers, asked.labels, len(numbers)), numbers)
    return ClassOrderCheck(
        f"a balanced accuracy of {100 * right:.1f} % on {where}",
        assess_class_order(answers, asked.labels, images.class_names, where=where),
    )


@dataclass(frozen=True)
class ResizeChoice:
    """How images should be resized, and the balanced accuracy that the model has with either way."""

    resize: Resize
    accuracies: dict[Resize, float]
    n: int
    is_clear: bool  # the accuracies differ by more than two standard errors


def choose_resize(model: nn.Module, listing: Listing, seen: Preprocessing) -> ResizeChoice:
    """Measure both ways of resizing on labelled images, validation images where there is a split.

    Where they are level, images that have the model's size are kept whole; for others the library's way is taken.
    """
    rows = np.arange(len(listing.labels)) if listing.parts is None else np.asarray(listing.parts[1])
    tried = rows[_spread(listing.labels[rows], _MEASURED)]
    labels, paths = listing.labels[tried], [listing.paths[row] for row in tried]
    right: dict[Resize, np.ndarray] = {}
    for resize in ("squash", "crop"):
        files = ImageFiles(
            paths,
            labels,
            class_names=listing.class_names,
            size=seen.size,
            resize=resize,
            channels=1 if seen.channels == 1 else 3,
        )
        images = LabelledImages(files, np.zeros(len(files), dtype=bool), transform=Normalize(seen.mean, seen.std))
        answers = predict_classes(predict_logits(model, images, batch_size=_BATCH).astype(np.float64))
        right[resize] = (answers == labels).astype(float)
    inside = [labels == label for label in np.unique(labels)]
    gains = [(right["squash"] - right["crop"])[rows] for rows in inside]
    gain = float(np.mean([each.mean() for each in gains]))
    error = 2 * math.sqrt(sum(each.var() / len(each) for each in gains)) / len(gains)
    accuracies = {name: float(np.mean([each[rows].mean() for rows in inside])) for name, each in right.items()}
    with Image.open(paths[0]) as picture:
        is_whole = picture.size == (seen.size, seen.size)
    level: Resize = "squash" if is_whole else seen.resize
    chosen: Resize = level if abs(gain) <= error else "squash" if gain > 0 else "crop"
    return ResizeChoice(chosen, accuracies, len(labels), abs(gain) > error)


def _spread(labels: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many indices, as far as possible the same number of each class."""
    each = max(1, most // max(1, len(np.unique(labels))))
    found = np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)])
    return found if len(found) <= most else found[np.linspace(0, len(found) - 1, most).round().astype(int)]


def assess_class_order(
    answers: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *, where: str = "clean test images"
) -> ClassOrderWarning | None:
    """Return a warning if the model is hardly better than chance on clean images, or another order fits far better.

    The first may be the shortcut itself: a model that predicts a class only with the artifact never predicts it here.
    Answers are indices of the largest output per image, negative where there is none.
    """
    numbers = np.arange(len(class_names))
    # Found on every other image and tested on the rest: among many orders one always fits by chance.
    order = _best_order(_answered(answers[::2], labels[::2], len(numbers)))
    unseen = _answered(answers[1::2], labels[1::2], len(numbers))
    now, chance = _accuracy(_answered(answers, labels, len(numbers)), numbers), chance_level(labels)
    best = _accuracy(unseen, order)
    is_far = best - _accuracy(unseen, numbers) >= _CLEARLY
    is_near = now - 2 * _standard_error(now, labels[answers >= 0]) <= chance + _NEARLY * (1 - chance)
    if not (is_near or is_far):
        return None
    accuracy = (
        f"The original model has a balanced accuracy of {100 * now:.1f} % on {where} (chance level "
        f"{100 * chance:.1f} %)."
    )
    if is_far:
        names = ", ".join(class_names[number] for number in order)
        return ClassOrderWarning(
            f"{accuracy} Most likely data.classes is not in the order of the model's outputs: [{names}] would give "
            f"{100 * best:.1f} %.",
            is_order=True,
        )
    return ClassOrderWarning(
        f"{accuracy} Check that the weights are trained, that preprocessing is as in training (data.size, resize, "
        "mean, std), and that data.classes is in the order of the outputs.",
        is_order=False,
    )


def _answered(answers: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the share of each class (row) that is predicted as each class (column)."""
    is_answered = answers >= 0
    places = classes * labels[is_answered] + answers[is_answered]
    counts = np.bincount(places, minlength=classes**2).reshape(classes, classes)
    rates: np.ndarray = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    return rates


def _standard_error(accuracy: float, labels: np.ndarray) -> float:
    """Return the standard error of a balanced accuracy, as if every class had the same."""
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
