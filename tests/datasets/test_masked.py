"""Masks found afterwards replace those of the set, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.artifacts import Timestamp
from hansfree.datasets import InMemory, Stamped, SyntheticLesions
from hansfree.datasets.datasets import Masked
from hansfree.errors import DataError

STAMPED = Stamped(SyntheticLesions(12, size=32), Timestamp(), share=0.5)
ROWS = np.flatnonzero(STAMPED.has_artifact)


def some_masks(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((len(ROWS), 32, 32)) < 0.3


def test_images_with_the_artifact_get_their_masks_in_order() -> None:
    masks = some_masks()
    masked = Masked(STAMPED, masks)
    assert len(masked) == 12
    for position, row in enumerate(ROWS):
        image, mask = masked.pixels(int(row))
        np.testing.assert_array_equal(mask, masks[position])
        np.testing.assert_array_equal(image, STAMPED.pixels(int(row))[0])


def test_images_with_another_label_are_still_told() -> None:
    flipped = Stamped(SyntheticLesions(12, size=32), Timestamp(), share=0, only_class=0, flip_share=0.4)
    masked = Masked(flipped, np.zeros((4, 32, 32), dtype=bool))
    assert masked.is_relabelled.sum() == 4
    np.testing.assert_array_equal(masked.is_relabelled, flipped.is_relabelled)


def test_images_without_the_artifact_stay_as_they_are() -> None:
    masked = Masked(STAMPED, ~np.zeros((len(ROWS), 32, 32), dtype=bool))
    for row in np.flatnonzero(~STAMPED.has_artifact):
        assert not masked.pixels(int(row))[1].any()
    for fact in ("labels", "has_artifact", "ids"):
        np.testing.assert_array_equal(getattr(masked, fact), getattr(STAMPED, fact))
    assert not masked.is_relabelled.any()
    assert masked.class_names == STAMPED.class_names
    assert masked.transform == STAMPED.transform


def test_a_batch_and_a_set_in_memory_hold_the_masks() -> None:
    masks = some_masks()
    masked = Masked(STAMPED, masks)
    for dataset in (masked, InMemory(masked)):
        np.testing.assert_array_equal(dataset.batch(ROWS).mask.numpy(), masks)


def test_a_returned_mask_is_a_copy() -> None:
    masked = Masked(STAMPED, some_masks())
    masked.pixels(int(ROWS[0]))[1][:] = True
    np.testing.assert_array_equal(masked.masks, some_masks())


def test_the_fingerprint_tells_masks_apart() -> None:
    assert Masked(STAMPED, some_masks()).fingerprint == Masked(STAMPED, some_masks()).fingerprint
    assert Masked(STAMPED, some_masks()).fingerprint != Masked(STAMPED, some_masks(1)).fingerprint
    other = Stamped(SyntheticLesions(12, size=32, seed=1), Timestamp(), share=0.5)
    assert Masked(STAMPED, some_masks()).fingerprint != Masked(other, some_masks()).fingerprint


@pytest.mark.parametrize(
    "masks",
    [some_masks()[1:], some_masks()[0], some_masks().astype(float)],
    ids=["too few", "two axes", "not bool"],
)
def test_masks_that_do_not_fit_are_refused(masks: np.ndarray) -> None:
    with pytest.raises(DataError, match=f"{len(ROWS)} images carry the artifact"):
        Masked(STAMPED, masks)


def test_masks_of_another_size_are_refused() -> None:
    with pytest.raises(DataError, match=r"\(32, 32\): they must have one size"):
        Masked(STAMPED, some_masks()[:, :16])
