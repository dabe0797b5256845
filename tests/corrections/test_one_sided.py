"""One-sided P-ClArC: what scores above the clean mean comes down to it, the rest stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hansfree.activations.positions import pool
from hansfree.corrections import OneSidedPClArC
from hansfree.training import FineTuning
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
