"""Images with natural artifacts: the bits are the given ones, the pixels the source's, and no mask is made up."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.datasets import Flagged, InMemory, Normalize, SyntheticLesions
from hansfree.errors import DataError

SOURCE = SyntheticLesions(12, size=32, start=5)
BITS = np.arange(12) % 3 == 0
ROWS = np.array([7, 0, 3])


def test_rows_keep_their_order_ids_and_bits() -> None:
    data = Flagged(SOURCE, BITS, rows=ROWS)
    assert np.array_equal(data.labels, SOURCE.labels[ROWS])
    assert data.ids.tolist() == [12, 5, 8]
    assert data.has_artifact.tolist() == [False, True, True]
    assert data.class_names == SOURCE.class_names
    for place, row in enumerate(ROWS):
        image, mask = data.pixels(place)
        assert np.array_equal(image, SOURCE.image(int(row)))
        assert mask.shape == (32, 32)
        assert mask.dtype == bool
        assert not mask.any()


def test_without_rows_it_is_the_whole_source() -> None:
    data = Flagged(SOURCE, BITS)
    assert len(data) == 12
    assert np.array_equal(data.has_artifact, BITS)
    example = data[3]
    assert (example.label, example.has_artifact, example.id) == (int(SOURCE.labels[3]), True, 8)


def test_the_artifact_at_the_first_place_counts() -> None:
    assert bool(Flagged(SOURCE, BITS)[0].has_artifact)
    assert InMemory(Flagged(SOURCE, BITS)).batch([0]).has_artifact.tolist() == [True]


def test_the_fingerprint_tells_everything() -> None:
    others = [
        Flagged(SOURCE, BITS, rows=ROWS),
        Flagged(SOURCE, BITS, rows=ROWS[::-1]),
        Flagged(SOURCE, BITS),
        Flagged(SOURCE, ~BITS),
        Flagged(SyntheticLesions(12, size=32), BITS),
        Flagged(SOURCE, BITS, transform=Normalize(mean=(0.5, 0.5, 0.5))),
    ]
    assert len({data.fingerprint for data in others}) == len(others)
    assert Flagged(SOURCE, BITS, rows=ROWS.copy()).fingerprint == others[0].fingerprint


@pytest.mark.parametrize("bits", [BITS[:-1], BITS.astype(int), BITS[:, None]], ids=["too few", "numbers", "a column"])
def test_bits_that_are_not_one_per_image_are_refused(bits: np.ndarray) -> None:
    with pytest.raises(DataError, match="12 images need as many artifact bits"):
        Flagged(SOURCE, bits)
