"""Images that came with the artifact: the sets of an experiment whose bias is the one that is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.base import IMAGENET, Normalize
from hansfree.datasets.flagged import Flagged
from hansfree.datasets.splits import Subset
from hansfree.datasets.stamped import Stamped
from hansfree.studies.study import BiasedData


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
