"""Sets without and with the artifact: what is not so is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hansfree.datasets.pairs import check_bits, check_same_images
from hansfree.errors import DataError


@dataclass
class Held:
    ids: np.ndarray
    labels: np.ndarray
    has_artifact: np.ndarray | None


def held(bits, *, first=0, label=0):
    n = 4 if bits is None else len(bits)
    return Held(np.arange(first, first + n), np.full(n, label), None if bits is None else np.array(bits))


def test_bits_that_say_the_opposite_are_refused():
    check_bits(held([False] * 4), held([True] * 3))
    check_bits(held(None), held(None))
    with pytest.raises(DataError, match=r"^1 of the 4 clean images carry the artifact\.$"):
        check_bits(held([False, False, True, False]), held([True]))
    with pytest.raises(DataError, match=r"^2 of the 3 biased images do not carry the artifact\.$"):
        check_bits(held([False]), held([False, True, False]))


def test_sets_of_other_images_are_refused():
    check_same_images(held(None), held([True] * 4))
    for other in (held(None, first=1), held(None, label=1), held([True] * 3)):
        with pytest.raises(DataError, match="must be the same images, without and with the artifact"):
            check_same_images(held(None), other)
