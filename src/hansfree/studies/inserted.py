"""Put an artifact into the images of a source: the sets of an experiment whose bias is controlled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.base import IMAGENET, ImageSource, Normalize
from hansfree.datasets.part import Part
from hansfree.datasets.stamped import Stamped
from hansfree.errors import DataError, OptionError
from hansfree.studies.study import BiasedData


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
