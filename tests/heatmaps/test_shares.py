"""The share of relevance on the artifact is the paper's formula, and undefined where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hansfree.errors import DataError
from hansfree.evaluation.heatmaps import artifact_relevance
from tests.heatmaps.samples import seeded


def test_artifact_relevance_is_the_papers_formula() -> None:
    maps, masks = seeded(3, 4, 5).numpy(), np.random.default_rng(1).random((3, 4, 5)) < 0.3
    expected = []
    for heatmap, mask in zip(maps, masks):
        inside = sum(abs(r * m) for r, m in zip(heatmap.ravel(), mask.ravel()))
        expected.append(inside / sum(abs(r) for r in heatmap.ravel()))
    np.testing.assert_allclose(artifact_relevance(maps, masks), expected)
    np.testing.assert_allclose(artifact_relevance(torch.from_numpy(maps), torch.from_numpy(masks)), expected)


def test_artifact_relevance_of_nothing_is_not_zero() -> None:
    maps = np.zeros((3, 2, 2))
    maps[1, 0, 0] = np.nan
    maps[2, 0, 0] = -2
    masks = np.ones((3, 2, 2), dtype=bool)
    np.testing.assert_array_equal(artifact_relevance(maps, masks), [np.nan, np.nan, 1])
    with pytest.raises(DataError, match="masks"):
        artifact_relevance(maps, masks[:2])


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_artifact_relevance_is_a_share(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    maps, masks = rng.normal(size=(2, 3, 3)), rng.random((2, 3, 3)) < 0.5
    share = artifact_relevance(maps, masks)
    assert ((share >= 0) & (share <= 1)).all()
    np.testing.assert_allclose(share + artifact_relevance(maps, ~masks), 1)
    np.testing.assert_allclose(artifact_relevance(-scale * maps, masks), share)
