from __future__ import annotations

import math

import numpy as np
import pytest

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import ArtifactRelevance, Evidence
from tests.metrics.examples import one_hot, plain_evidence


def with_relevance(values: list[float]) -> Evidence:
    logits = one_hot([0, 1], 2)
    return plain_evidence([0, 1], logits, logits, relevance=np.array(values))


def test_images_without_a_share_are_left_out_and_not_counted() -> None:
    score = ArtifactRelevance().compute(with_relevance([0.2, np.nan, 0.4, 0.9]))
    assert score.value == pytest.approx(0.5)
    assert score.stderr == pytest.approx(math.sqrt((0.09 + 0.01 + 0.16) / 2 / 3))
    assert score.n == 3


@pytest.mark.parametrize("values", [[], [np.nan, np.nan], [np.nan, 0.3]])
def test_fewer_than_two_shares_are_undefined(values: list[float]) -> None:
    with pytest.raises(UndefinedMetricError, match="at least 2 images"):
        ArtifactRelevance().compute(with_relevance(values))
