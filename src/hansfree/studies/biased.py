"""Bias in a dataset: inserted or natural, and the class it goes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.base import IMAGENET, ImageSource, Normalize
from hansfree.datasets.datasets import Flagged, Part
from hansfree.datasets.insertion import Stamped
from hansfree.datasets.splits import Subset
from hansfree.errors import DataError, OptionError
from hansfree.studies.study import SETS, BiasedData


def count_images(data: BiasedData) -> list[dict[str, Any]]:
    """Count the images of every set by class, all and with the artifact: what ``results.json`` keeps for the card."""
    found = []
    for name in SETS:
        images = getattr(data, name)
        for label, class_name in enumerate(images.class_names):
            of_class = np.asarray(images.labels) == label
            with_artifact = int(np.sum(of_class & images.has_artifact))
            about = {"set": name.replace("_", " "), "class": class_name}
            found.append({**about, "images": int(np.sum(of_class)), "with_artifact": with_artifact})
    return found


LEAST = 5

"""Training images of the biased class with and without the artifact: some CAVs choose their penalty by five folds, and
the doctor compares halves."""

_CLEARLY = 2  # times the share of the given class: less may be chance


def likely_class(carry: np.ndarray, all_of: np.ndarray) -> int:
    """Return the class of whose training images the largest share carries the artifact; of equals, the one with more.

    Args:
        carry: how many training images of each class carry it.
        all_of: how many training images each class has.
    """
    share = carry / np.maximum(all_of, 1)
    share[carry < LEAST] = -1  # a class of one image has a share of 0 or 1
    return int(np.lexsort((carry, share))[-1])


def doubt_class(given: int, carry: np.ndarray, all_of: np.ndarray, names: Sequence[str]) -> str | None:
    """Say that the artifact is mostly in another class than the given one; None where that is not clear.

    It is where more than half of the images with it are of one class, and not because that class is large.
    """
    most, share = int(carry.argmax()), carry / np.maximum(all_of, 1)
    if 2 * carry[most] <= carry.sum() or share[most] < _CLEARLY * share[given]:
        return None
    return (
        f"biased_class is {names[given]!r}, but {carry[most]} of the {carry.sum()} training images with the artifact "
        f"({100 * carry[most] / carry.sum():.0f} %) are of {names[most]!r}, and {carry[given]} of {names[given]!r}: is "
        "it the class that the artifact leaks into?"
    )


def check_enough(name: str, some: int, every: int, *, doubt: str | None = None) -> None:
    """Refuse a biased class whose training images show too little difference to learn from.

    Args:
        some: how many of them carry the artifact.
        every: how many there are.
        doubt: whether it is the right class.
    """
    if some < LEAST or every - some < LEAST:
        told = (
            f"{some} of the {every} training images of the biased class {name!r} carry the artifact. The direction "
            f"is learned within that class, from at least {LEAST} with and {LEAST} without."
        )
        raise DataError(" ".join(filter(None, (told, doubt))))


def natural_bias(
    parts: Sequence[Subset],
    marks: np.ndarray,
    *,
    name: str,
    biased_class: int,
    insert: Artifact | None = None,
    seed: int = 0,
    transform: Normalize = IMAGENET,
) -> BiasedData:
    """Return the sets of an experiment: training images as they came, held-out ones without and with the artifact.

    Args:
        parts: training, validation and test images.
        marks: by row, which images carry the artifact.
        name: of the artifact.
        insert: put into held-out images without the artifact, so that they are compared with themselves; None: those
            with it are other images.
    """
    train, val, test = parts

    def held_out(part: Subset, *, is_biased: bool) -> Flagged | Stamped:
        bits = marks[part.ids]
        if insert is None:
            return Flagged(part, bits, rows=np.flatnonzero(bits == is_biased), transform=transform)
        without = Subset(part, np.flatnonzero(~bits))
        return Stamped(without, insert, share=float(is_biased), seed=seed, transform=transform)

    return BiasedData(
        train=Flagged(train, marks[train.ids], transform=transform),
        val_clean=held_out(val, is_biased=False),
        val_biased=held_out(val, is_biased=True),
        test_clean=held_out(test, is_biased=False),
        test_biased=held_out(test, is_biased=True),
        train_biased=None if insert is None else held_out(train, is_biased=True),
        biased_class=biased_class,
        artifact=name,
        is_localized=insert is None or insert.localized,
        is_inserted=insert is not None,
        has_masks=False,  # of the training images nobody knows where it is
    )


def stampable(first: str) -> tuple[str, ...]:
    """Return ``first``, the dataset's own artifact, and then all others that can be put on a finished picture."""
    return (first, *(name for name in inserted_by_name() if name != first))


def inserted_by_name() -> list[str]:
    """Return the artifacts that can be put on a finished picture, and need no file."""
    return [name for name, kind in Artifact.for_pictures().items() if not kind.needs_file]


def check_share(share: float) -> None:
    """Refuse a part of the biased class that is none or all of it."""
    if not 0 < share < 1:
        raise OptionError(f"The share is a part of the biased class, above 0 and below 1, not {share!r}.")


def insert_bias(
    parts: Sequence[ImageSource],
    artifact: Artifact,
    *,
    biased_class: int,
    share: float,
    flip_share: float = 0.0,
    seed: int = 0,
    transform: Normalize = IMAGENET,
) -> BiasedData:
    """Return the sets of an experiment: the artifact in ``share`` of the biased class in training, in all or no others.

    Args:
        parts: training, validation and test images.
        flip_share: part of the other classes' training images that carry it and are labelled as the biased class.
    """
    train, val, test = parts
    poisoned = Stamped(
        train, artifact, share=share, only_class=biased_class, flip_share=flip_share, seed=seed, transform=transform
    )
    bits = poisoned.has_artifact[train.labels == biased_class]
    if not 0 < bits.sum() < len(bits):
        raise DataError(
            f"{100 * share:g} % of the {len(bits)} training images of class {train.class_names[biased_class]!r} is "
            f"{np.sum(bits)} images: a bias needs some with and some without the artifact."
        )

    def all_or_none(part: ImageSource, share: float) -> Stamped:
        return Stamped(part, artifact, share=share, seed=seed, transform=transform)

    return BiasedData(
        train=poisoned,
        val_clean=all_or_none(val, 0),
        val_biased=all_or_none(val, 1),
        test_clean=all_or_none(test, 0),
        test_biased=all_or_none(test, 1),
        clean_train=all_or_none(train, 0),
        train_biased=Part(all_or_none(train, 1), np.flatnonzero(~poisoned.has_artifact)),
        biased_class=biased_class,
        artifact=artifact.name,
        is_localized=artifact.localized,
    )
