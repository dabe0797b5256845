"""Heatmaps on a coarse grid, as features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hansfree.data.datasets import LabelledImages
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.suspects import relevance_features
from hansfree.evaluation.heatmaps import compute_heatmaps
from hansfree.models import build_model


@pytest.fixture(scope="module")
def images() -> LabelledImages:
    return LabelledImages(SyntheticLesions(6, size=32), np.zeros(6, dtype=bool))


def test_features_are_shares_of_each_heatmap_by_cell(images: LabelledImages) -> None:
    model = build_model("demo", classes=4, seed=0).eval()
    found = relevance_features(model, images, grid=4, batch_size=4)
    batch = images.batch(range(6))
    maps = compute_heatmaps(model, batch.image, torch.as_tensor(images.labels)).double().numpy()
    for row in range(6):
        cells = np.array([[maps[row, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8].sum() for j in range(4)] for i in range(4)])
        assert found[row] == pytest.approx(cells.ravel() / np.abs(cells).sum(), rel=1e-3, abs=1e-5)
