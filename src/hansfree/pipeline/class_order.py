"""Whether classes and preprocessing of a run file are those of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


Way = tuple[int, Resize]  # size in pixels and how images are brought to it


@dataclass(frozen=True)
class PreprocessingChoice:
    """Size and resizing that fit the model best, and the balanced accuracy that it has with each way tried."""

    size: int
    resize: Resize
    accuracies: dict[Way, float]
    n: int
    is_clear: bool  # by more than two standard errors
    doubt: ClassOrderWarning | None  # of the class order, with the chosen way


def choose_preprocessing(
    model: nn.Module,
    listing: Listing,
    seen: Preprocessing,
    *,
    resize: Resize | None = None,
    keep_size: bool = False,
) -> PreprocessingChoice:
    """Measure ways of resizing on labelled images, validation images where there is a split.

    Tried are both ways at the library's size, and square images of one size as they are: a model that was fine-tuned
    on them may have seen that size. Outputs count as the classes that fit them best, as the order may be wrong. Where
    no way is clearly better, images that have the model's size are kept whole; for others the library's way is taken.

    Args:
        resize: the user's choice; the other way is not tried.
        keep_size: the size is the user's choice.
    """
    rows = np.arange(len(listing.labels)) if listing.parts is None else np.asarray(listing.parts[1])
    tried = rows[_spread(listing.labels[rows], _MEASURED)]
    labels, paths = listing.labels[tried], [listing.paths[row] for row in tried]
    own = _common_side(paths)
    ways: list[Way] = [(seen.size, "squash"), (seen.size, "crop")]
    if own is not None and own != seen.size and not keep_size:
        ways.append((own, "squash"))
    right: dict[Way, np.ndarray] = {}
    found: dict[Way, np.ndarray] = {}
    for way in ways if resize is None else [way for way in ways if way[1] == resize]:
        files = ImageFiles(
            paths,
            labels,
            class_names=listing.class_names,
            size=way[0],
            resize=way[1],
            channels=1 if seen.channels == 1 else 3,
        )
        images = LabelledImages(files, np.zeros(len(files), dtype=bool), transform=Normalize(seen.mean, seen.std))
        try:
            answers = predict_classes(predict_logits(model, images, batch_size=_BATCH).astype(np.float64))
        except RuntimeError:  # a vision transformer takes one size only
            continue
        answers = np.where(answers < len(listing.class_names), answers, -1)
        order = _best_order(_answered(answers, labels, len(listing.class_names)))
        found[way] = answers
        right[way] = ((order[answers] == labels) & (answers >= 0)).astype(float)
    inside = [labels == label for label in np.unique(labels)]
    accuracies = {way: float(np.mean([each[rows].mean() for rows in inside])) for way, each in right.items()}
    level: Way = (seen.size, resize or ("squash" if own == seen.size else seen.resize))
    best, second = (*sorted(accuracies, key=lambda way: -accuracies[way]), level)[:2]
    other = second if best == level else level
    gains = [(right[best] - right[other])[rows] for rows in inside]
    error = 2 * math.sqrt(sum(each.var() / len(each) for each in gains)) / len(gains)
    is_clear = accuracies[best] - accuracies[other] > error
    chosen = best if is_clear else level
    where = f"{len(labels)} labelled images"
    doubt = assess_class_order(found[chosen], labels, listing.class_names, where=where)
    return PreprocessingChoice(*chosen, accuracies, len(labels), is_clear, doubt)


def _common_side(paths: Sequence[Path]) -> int | None:
    """Return the side of the images if all are square and of one size."""
    sizes = set()
    for path in paths:
        with Image.open(path) as picture:
            sizes.add(picture.size)
    width, height = next(iter(sizes))
    return width if len(sizes) == 1 and width == height else None


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
