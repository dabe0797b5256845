from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hansfree.placements import share_below

SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=20).map(np.array)  # few values: many ties


@given(scores=SCORES, others=SCORES)
def test_it_is_the_double_loop(scores: np.ndarray, others: np.ndarray) -> None:
    slowly = [sum((other < score) + 0.5 * (other == score) for other in others) / len(others) for score in scores]
    np.testing.assert_allclose(share_below(scores, others), slowly)
