"""What a clean and a biased set must be, so that a comparison of them can prove anything."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hansfree.errors import DataError


class Held(Protocol):
    """Images or what is left of them, of which ids, labels and maybe artifact bits are known."""

    @property
    def ids(self) -> np.ndarray:
        """Which images of the source they are."""

    @property
    def labels(self) -> np.ndarray:
        """The class of each."""

    @property
    def has_artifact(self) -> np.ndarray | None:
        """The artifact bit of each, or None where nobody knows."""


def check_bits(clean: Held, biased: Held | None) -> None:
    """Refuse sets whose own artifact bits say that they are not without and with it."""
    if clean.has_artifact is not None and np.any(clean.has_artifact):
        n = len(clean.has_artifact)
        raise DataError(f"{np.sum(clean.has_artifact)} of the {n} clean images carry the artifact.")
    if biased is not None and biased.has_artifact is not None and not np.all(biased.has_artifact):
        n = len(biased.has_artifact)
        raise DataError(f"{np.sum(~biased.has_artifact)} of the {n} biased images do not carry the artifact.")


def check_same_images(clean: Held, biased: Held) -> None:
    """Refuse sets that are not the same images in the same order, as they are where an artifact is put in."""
    if not (np.array_equal(clean.ids, biased.ids) and np.array_equal(clean.labels, biased.labels)):
        raise DataError("The clean and the biased set must be the same images, without and with the artifact.")
