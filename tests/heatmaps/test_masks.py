"""Masks from heatmaps: what stands out is covered, and a mask is never empty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hansfree.errors import DataError, OptionError
from hansfree.evaluation.localisation import _otsu, masks_from_heatmaps


def patch(size: int, *, height: float = 1.0, noise: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a grainy heatmap with a square of larger relevance, and the square."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((64, 64), dtype=bool)
    mask[20 : 20 + size, 30 : 30 + size] = True
    return (mask * rng.exponential(height, mask.shape) + noise * rng.normal(size=mask.shape)), mask


@pytest.mark.parametrize("size", [8, 16, 28])
def test_a_grainy_patch_is_covered_whatever_its_size(size: int) -> None:
    heatmap, truth = patch(size)
    (found,) = masks_from_heatmaps(heatmap[None])
    assert (found & truth).sum() > 0.75 * truth.sum()
    assert (found & ~truth).sum() < 0.35 * truth.sum()


def test_negative_relevance_does_not_count() -> None:
    heatmap, truth = patch(12, noise=0.0)
    heatmap[50:60, 50:60] = -10
    np.testing.assert_array_equal(masks_from_heatmaps(heatmap[None]), masks_from_heatmaps(np.maximum(heatmap, 0)[None]))
    np.testing.assert_array_equal(masks_from_heatmaps(truth[None] * 2.0, blur=0)[0], truth)


@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-20, 20))
def test_the_unit_of_the_heatmap_does_not_matter(seed: int, power: int) -> None:
    heatmap = np.random.default_rng(seed).normal(size=(2, 12, 9))
    masks = masks_from_heatmaps(heatmap)
    assert masks.dtype == bool
    assert masks.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(masks_from_heatmaps(torch.from_numpy(heatmap) * 2.0**power), masks)


def test_each_image_has_a_threshold_of_its_own() -> None:
    loud, truth = patch(12, height=1000)
    quiet, _ = patch(12, noise=0.2, seed=1)
    together = masks_from_heatmaps(np.stack([loud, quiet]))
    np.testing.assert_array_equal(together[1], masks_from_heatmaps(quiet[None])[0])
    assert together[1][truth].mean() > 0.7


@pytest.mark.parametrize("value", [0.0, -1.0, 0.3])
def test_a_map_that_says_nothing_gives_the_full_image(value: float) -> None:
    assert masks_from_heatmaps(np.full((1, 10, 10), value)).all()
    assert masks_from_heatmaps(np.full((1, 1, 1), value)).all()


def test_no_heatmaps_no_masks() -> None:
    assert masks_from_heatmaps(np.zeros((0, 4, 5))).shape == (0, 4, 5)


def literal_otsu(values: np.ndarray) -> float:
    """Try every value as the threshold; the best leaves the least variance within the two sides."""

    def within(threshold: float) -> float:
        sides = values[values <= threshold], values[values > threshold]
        return sum(len(side) * side.var() for side in sides)

    return min(np.unique(values)[:-1], key=within)


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_is_otsus(seed: int) -> None:
    values = np.random.default_rng(seed).exponential(size=40).round(1)  # rounded: ties must stay on one side
    assert _otsu(values) == literal_otsu(values)


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(DataError, match=r"\(4, 4\)"):
        masks_from_heatmaps(np.zeros((4, 4)))
    with pytest.raises(DataError, match="1 of 2 heatmaps are not finite; the first is number 1"):
        masks_from_heatmaps(np.stack([np.zeros((3, 3)), np.full((3, 3), np.nan)]))
    with pytest.raises(OptionError, match="blur"):
        masks_from_heatmaps(np.zeros((1, 4, 4)), blur=3)
