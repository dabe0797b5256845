from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import NO_PREDICTION, Evidence, Metric, predict_classes
from tests.metrics.examples import draw_evidence, one_hot, plain_evidence

nan, inf = np.nan, np.inf


def test_rows_without_a_finite_maximum_have_no_prediction() -> None:
    logits = np.array([[0, 2, 1], [0, nan, 1], [inf, 0, 0], [-inf, -inf, -inf], [-inf, 3, 4]])
    np.testing.assert_array_equal(predict_classes(logits), [1, NO_PREDICTION, NO_PREDICTION, NO_PREDICTION, 2])


def test_numbers_are_widened_to_float64_and_int64() -> None:
    evidence = Evidence(
        labels=np.array([0, 1], dtype=np.uint8),
        biased_class=0,
        logits_clean=np.ones((2, 2), dtype=np.float32),
        logits_biased=np.ones((2, 2), dtype=np.float16),
        derivatives=np.ones(3, dtype=np.float32),
    )
    assert evidence.labels.dtype == np.int64
    assert evidence.logits_clean.dtype == evidence.logits_biased.dtype == np.float64
    assert evidence.derivatives is not None
    assert evidence.derivatives.dtype == np.float64


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labels": np.zeros(3)}, "labels must be integers"),
        ({"labels": np.zeros((240, 1), dtype=int)}, "labels must have 1 dimension"),
        ({"labels": np.zeros(3, dtype=int)}, "3 labels need"),
        ({"labels": np.full(240, 3)}, "3 logits allow 0 to 2"),
        ({"labels": np.full(240, -1)}, "from -1"),
        ({"biased_class": 3}, "The biased class is 3"),
        ({"biased_class": -1}, "The biased class is -1"),
        ({"logits_biased": np.zeros((240, 2))}, r"logits_biased of \(240, classes\)"),
        ({"logits_clean": np.zeros(240)}, "logits_clean must have 2 dimension"),
        ({"n_positions": 0}, "at least 1 position"),
        ({"n_positions": 8}, "at most n_positions=8"),
        ({"position_signs": np.zeros((240, 2), dtype=int)}, r"shape \(240, 3\)"),
        ({"position_signs": np.full((240, 3), -1)}, "counts"),
        ({"position_signs": np.zeros((240, 3))}, "position_signs must be integers"),
        ({"derivatives": None}, "derivatives, which are not given"),
        ({"derivatives": np.zeros((240, 1))}, "derivatives must have 1 dimension"),
        ({"relevance": np.zeros((240, 1))}, "relevance must have 1 dimension"),
    ],
)
def test_evidence_that_does_not_fit_together_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        replace(draw_evidence(0), **change)


@pytest.mark.parametrize("shape", [(0, 3), (2, 1)])
def test_nothing_to_score_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="nothing to score"):
        plain_evidence([0] * shape[0] if shape[0] else np.array([], dtype=int), np.zeros(shape), np.zeros(shape))


def test_a_mean_of_one_image_is_undefined_and_a_proportion_is_not() -> None:
    one = plain_evidence([0], one_hot([0], 2), one_hot([1], 2))
    with pytest.raises(UndefinedMetricError, match="at least 2 images"):
        Metric.named("probability_change")().compute(one)
    assert Metric.named("flip_rate")().compute(one).n == 1
