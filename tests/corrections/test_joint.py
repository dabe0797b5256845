"""RR-ClArC along a joint CAV: the penalty of the real heads is the sum of the single penalties, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hansfree.cavs import CAV, SignalCAV, join_cavs
from hansfree.corrections import RRClArC
from tests.corrections.examples import CASES, TinyImages, batch_of, collect, in_double, value_and_gradients


@pytest.mark.parametrize("name", CASES)
def test_the_penalty_of_several_artifacts_is_the_sum_of_theirs(name: str) -> None:
    case, data = CASES[name], TinyImages()
    activations = collect(case, case.model(), data)
    bits = (data.has_artifact, np.arange(len(data)) % 2 == 0)
    cavs = [SignalCAV().fit(activations.pooled, bit) for bit in bits]
    cut = in_double(case.model(), case)

    def penalty(cav: CAV) -> torch.Tensor:
        method = RRClArC(cav)
        return value_and_gradients(cut, method, batch_of(cut, method, activations, data))[1]

    torch.testing.assert_close(penalty(join_cavs(cavs)), penalty(cavs[0]) + penalty(cavs[1]), rtol=1e-9, atol=1e-12)
