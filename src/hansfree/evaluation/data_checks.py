"""Which claims the held-out images allow: what a reader may and may not conclude, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hansfree.corrections import has_counter_examples
from hansfree.data import BiasedData, ImageDataset
from hansfree.metrics import MIN_GROUP, large_classes

BIASED_ACCURACY, WORST_GROUP = "accuracy with the artifact", "worst group"  # the claims' names


@dataclass(frozen=True)
class Claim:
    """Something that a reader would like to conclude, whether the data allow it, and the facts that decide it."""

    name: str
    can_be_made: bool
    facts: dict[str, Any]


def claims(data: BiasedData) -> tuple[Claim, ...]:
    """Return what the data allow to claim about any model; known before one is trained."""
    n, few = len(data.test_biased), []
    for kind, images in (("without", data.test_clean), ("with", data.test_biased)):
        few += [[name, kind, count] for name, count in _count(images).items() if count < MIN_GROUP]
    inserted = {"is_inserted": data.is_inserted, "transplant": data.transplant, "n": n}
    is_known = data.is_inserted or len(large_classes(data.test_biased.labels)) >= 2
    return (
        Claim(BIASED_ACCURACY, is_known, {**inserted, "images": _count(data.test_biased)}),
        Claim("flip rate", data.is_inserted, inserted),
        Claim(WORST_GROUP, not few, {"few": few}),
        Claim("strength chosen by accuracy", has_counter_examples(data), {"images": _count(data.val_biased)}),
        Claim("derivative along the CAV (TCAV)", True, {**inserted, "n_clean": len(data.test_clean)}),
    )


def _count(images: ImageDataset) -> dict[str, int]:
    """Return how many images there are of each class."""
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    return dict(zip(images.class_names, map(int, counts)))
