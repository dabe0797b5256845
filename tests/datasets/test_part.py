"""Some examples of a set: the same ones, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.artifacts import Timestamp
from hansfree.datasets import Part, Stamped, SyntheticLesions
from hansfree.errors import DataError

WHOLE = Stamped(SyntheticLesions(24, size=32), Timestamp(), share=0.5, only_class=0, flip_share=0.1)


def test_it_holds_the_same_examples() -> None:
    rows = np.array([5, 0, 23])
    part = Part(WHOLE, rows)
    assert len(part) == 3
    for name in ("labels", "ids", "has_artifact", "is_relabelled"):
        assert np.array_equal(getattr(part, name), getattr(WHOLE, name)[rows])
    for index, row in enumerate(rows):
        for ours, theirs in zip(part.pixels(index), WHOLE.pixels(int(row))):
            assert np.array_equal(ours, theirs)


def test_other_rows_or_another_set_are_another_part() -> None:
    other = Stamped(SyntheticLesions(24, size=32, seed=1), Timestamp(), share=0.5, only_class=0, flip_share=0.1)
    parts = [Part(WHOLE, range(5)), Part(WHOLE, range(6)), Part(WHOLE, range(4, -1, -1)), Part(other, range(5))]
    assert len({part.fingerprint for part in parts}) == len({part.pictures for part in parts}) == len(parts)
    assert Part(WHOLE, range(5)).fingerprint == Part(WHOLE, np.arange(5)).fingerprint


@pytest.mark.parametrize("rows", [range(20, 25), np.array([-1])])
def test_rows_that_are_not_there_are_refused(rows: range | np.ndarray) -> None:
    with pytest.raises(DataError, match="has 24 examples"):
        Part(WHOLE, rows)
