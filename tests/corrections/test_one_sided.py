"""One-sided P-ClArC: what scores above the clean mean comes down to it, the rest stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hansfree.activations import find_pairs
from hansfree.activations.cache import pool
from hansfree.cavs import PairCAV
from hansfree.corrections import OneSidedPClArC
from hansfree.corrections.training import FineTuning
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav

TUNING = FineTuning(learning_rate=0.05, epochs=1, batch_size=100)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("where", ["convolution", "tokens"])
def test_it_only_ever_takes_away(where: str, k: int) -> None:
    case, data = CASES[where], TinyImages(40)
    model = case.model()
    activations = collect(case, model, data)
    cav = fit_cav(activations, k)
    edit: Any = OneSidedPClArC(cav, tuning=TUNING).inference_edit(activations)
    (before,) = next(activations.stream())
    after = edit.double()(before.double())
    old, new = (pool(a.double(), "max").numpy() @ cav.directions_.T for a in (before, after))
    np.testing.assert_allclose(new, np.minimum(old, cav.clean_score_), atol=1e-5)
    assert (old > cav.clean_score_ + 1e-3).any()
    untouched = (old < cav.clean_score_).all(1)
    assert untouched.any()
    assert torch.equal(after[untouched], before[untouched].double())


def test_along_a_direction_without_a_side_it_shifts_both_ways() -> None:
    """The further directions of pairs have an arbitrary sign: neither half of the images has more of the artifact."""
    case = CASES["convolution"]
    model = case.model()
    activations = collect(case, model, TinyImages(60, artifact="pairs"))
    clean, biased = find_pairs(activations).T
    cav = PairCAV(count=2).fit_pairs(activations.pooled[clean], activations.pooled[biased])
    assert (cav.scale_ > 0).tolist() == [True, False]
    edit: Any = OneSidedPClArC(cav, tuning=TUNING).inference_edit(activations)
    (before,) = next(activations.stream())
    old, new = (pool(a.double(), "max").numpy() @ cav.directions_.T for a in (before, edit.double()(before.double())))
    assert (old[:, 1] < cav.clean_score_[1] - 1e-3).any()
    np.testing.assert_allclose(new[:, 0], np.minimum(old[:, 0], cav.clean_score_[0]), atol=1e-5)
    np.testing.assert_allclose(new[:, 1], cav.clean_score_[1], atol=1e-5)
