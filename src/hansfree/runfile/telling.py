"""What is told about the images before a run starts: how many there are, how they are scaled, how to have enough."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from hansfree.metrics import MIN_GROUP
from hansfree.models import Preprocessing
from hansfree.runfile.schema import CorrectionSection
from hansfree.studies import BiasedData, OwnImages

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
