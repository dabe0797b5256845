"""Checks before a run: class order, disk, preprocessing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

from hansfree._internal.files import format_bytes
from hansfree._internal.progress import Progress, silent
from hansfree.datasets import ExampleSet, Part
from hansfree.errors import RunError
from hansfree.experiments import Setting
from hansfree.metrics import MIN_GROUP, chance_level, predict_classes
from hansfree.models import Preprocessing, plain_state, predict_logits
from hansfree.models.surgery import split
from hansfree.runfile.config import CorrectionSection
from hansfree.studies import SETS, BiasedData, OwnImages

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


def tell_disk(out: Path, setting: Setting, *, methods: int, with_pairs: bool = False, further: int = 0) -> str:
    """Say how much activations and weights take; refuse what cannot fit, rather than stop in the middle.

    All else, such as report, scores and heatmaps, is small beside them. What a run that goes on has already counts as
    there.

    Args:
        methods: How many corrected models are kept, beside the original one and one that is exported.
        with_pairs: The run needs training images with the artifact put in, too.
        further: How many images more, with other artifacts put in.
    """
    example = setting.data.train.batch([0]).image
    live = split(setting.model, setting.layer, example=example).trunk(example)
    each = sum(4 * math.prod(tensor.shape[1:]) for tensor in live)
    sets = (*SETS, "train_biased") if with_pairs else SETS
    count = sum(len(getattr(setting.data, part)) for part in sets) + further
    models = methods + 2
    # The layer's output, and at most as much again for what is computed from it.
    activations = max(0, 2 * each * count - _taken(out, "activations/**/*"))
    of_model = sum(tensor.numel() * tensor.element_size() for tensor in plain_state(setting.model).values())
    weights = max(0, of_model * models - _taken(out, "original.safetensors", "corrected/*", "exported/**/*"))
    needed = activations + weights
    place = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise RunError(
            f"The run needs up to {format_bytes(needed)} in {out}, where {format_bytes(free)} are free. Choose another "
            f"folder, or a later layer: {setting.layer!r} has {format_bytes(each)} per image."
        )
    return (
        f"up to {format_bytes(needed)}: {format_bytes(activations)} for {count} images ({format_bytes(each)} each at "
        f"the layer), {format_bytes(weights)} for the weights of {models} models; {format_bytes(free)} are free"
    )


def _taken(out: Path, *patterns: str) -> int:
    """Return how many bytes a run has in some of its files."""
    return sum(file.stat().st_size for pattern in patterns for file in out.glob(pattern) if file.is_file())


_TOO_MUCH = 2  # times the picture's own size: what a model sees is then mostly made up by the scaling

_STEP = 20  # a share is advised in twentieths

_MOST = 0.4  # a part that leaves a fifth of the images for training, with another one like it


def describe_images(data: BiasedData, images: OwnImages) -> str:
    """Say how many images each part has, and how many of them carry the artifact."""
    val, test = data.val_clean, data.test_clean
    told = [f"training {len(data.train)} ({int(data.train.has_artifact.sum())} with the artifact)"]
    if data.is_inserted:
        told[0] += f", validation {len(val)} and test {len(test)}, each as it is and with the artifact put in"
        by_nature = sum(map(len, images.parts[1:])) - len(val) - len(test)
        if by_nature:
            told.append(f"{by_nature} held-out images that carry it by nature are not used")
    else:
        told[0] += f", validation {len(val)} clean + {len(data.val_biased)} with it"
        told[0] += f", test {len(test)} clean + {len(data.test_biased)} with it"
    return "; ".join([*told, f"biased class {data.train.class_names[data.biased_class]!r}"])


def describe_balance(data: BiasedData) -> str:
    """Say how uneven the classes are that are to count the same; one without training images counts nothing."""
    classes, counts = np.unique(data.train.labels, return_counts=True)
    if counts.min() == counts.max():
        return f"every class counts the same, as it does anyway: each has {counts[0]} training images"
    largest, smallest = (
        f"{data.train.class_names[classes[place]]!r} with {counts[place]} training images"
        for place in (counts.argmax(), counts.argmin())
    )
    return f"every class counts the same: the largest is {largest}, the smallest {smallest}"


def describe_further(correction: CorrectionSection) -> str:
    """Name the methods along further CAVs, as results and `hansfree export` call them."""
    names = (name for name in correction.trials if name not in correction.methods)
    return f"{', '.join(names)}; all models are judged along {correction.cav}"


def notes_on_scaling(images: OwnImages, seen: Preprocessing) -> list[str]:
    """Warn of a size or a crop that the first picture does not fit: both spoil results without a word."""
    with Image.open(images.source.paths[0]) as picture:
        width, height = picture.size
    first, short, notes = f"the first image has {width} x {height} pixels", min(width, height), []
    if seen.size > _TOO_MUCH * short:
        notes.append(
            f"The model gets images of {seen.size} x {seen.size} pixels, and {first}: is data.size what it was trained "
            "with?"
        )
    if seen.resize == "crop":
        kept = (seen.size / round(seen.size * 256 / 224)) ** 2 * short / max(width, height)
        notes.append(
            f"resize: crop keeps the middle {100 * kept:.0f} % of an image ({first}), and cuts off an artifact at its "
            "edge. resize: squash keeps all; take what the model was trained with."
        )
    return notes


def advise_more(images: OwnImages, data: BiasedData) -> str:
    """Say how more clean validation images can be had."""
    if not images.is_drawn:
        return "The split is given: move images without the artifact into its validation part."
    share, ways = images.shares[1], "or give the split yourself: a column `split`, or folders train, val and test."
    told = f"Their share is {100 * share:g} %."
    train = data.train.labels[~data.train.has_artifact] if data.clean_train is None else data.clean_train.labels
    clean = np.bincount(np.concatenate([train, data.val_clean.labels, data.test_clean.labels]), minlength=2)
    # The second largest class decides, for two are needed; one image more, for a share may be rounded down.
    enough = (MIN_GROUP + 1) / max(1, np.sort(clean)[-2])
    part = math.ceil(_STEP * max(enough, share + 0.01)) / _STEP  # more than it is: groups may have made it too small
    if part > _MOST:
        return f"{told} Collect more images without the artifact, {ways}"
    return f"{told} Raise it, such as by `data.shares: [{1 - 2 * part:g}, {part:g}, {part:g}]`, {ways}"
