from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import AUROCBiased, AUROCClean, compute_scores
from hansfree.metrics.accuracy import log_odds
from tests.metrics.examples import draw_evidence, plain_evidence


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def test_value_agrees_with_scikit_learn() -> None:
    evidence = draw_evidence(0)
    for metric, logits in ((AUROCClean, evidence.logits_clean), (AUROCBiased, evidence.logits_biased)):
        expected = roc_auc_score(evidence.labels, softmax(logits), multi_class="ovr")
        assert metric().compute(evidence).value == pytest.approx(expected, abs=1e-12)


def slow_delong(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """DeLong et al. 1988 for one curve, pair by pair."""
    x, y = scores[positive], scores[~positive]
    psi = np.array([[1.0 if a > b else 0.5 if a == b else 0.0 for b in y] for a in x])
    area = psi.mean()
    s10 = sum((row.mean() - area) ** 2 for row in psi) / (len(x) - 1)
    s01 = sum((column.mean() - area) ** 2 for column in psi.T) / (len(y) - 1)
    return area, np.sqrt(s10 / len(x) + s01 / len(y))


@pytest.mark.parametrize("decimals", [8, 0])  # without and with many ties
def test_two_classes_give_the_standard_error_of_delong(decimals: int) -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], [30, 20])
    margin = np.round(rng.normal(size=50) + labels, decimals)
    logits = np.stack([np.zeros(50), margin], axis=1)
    score = AUROCClean().compute(plain_evidence(list(labels), logits, logits))
    area, stderr = slow_delong(margin, labels == 1)
    assert score.value == pytest.approx(area)
    assert score.stderr == pytest.approx(stderr)
    assert score.n == 50


def test_correlated_curves_are_not_averaged_as_if_independent() -> None:
    """With two classes both curves are one: averaging must not shrink the error by sqrt(2)."""
    evidence = draw_evidence(2)
    two = evidence.labels < 2
    logits = evidence.logits_clean[two][:, :2]
    score = AUROCClean().compute(plain_evidence(list(evidence.labels[two]), logits, logits))
    _, one_curve = slow_delong(logits[:, 1] - logits[:, 0], evidence.labels[two] == 1)
    assert score.stderr == pytest.approx(one_curve)


def test_confident_logits_keep_their_order_where_the_softmax_rounds_to_one() -> None:
    logits = np.array([[50.0, 0.0], [60.0, 0.0], [70.0, 0.0], [80.0, 0.0]])
    assert np.unique(softmax(logits)[:, 0]).size == 1
    assert AUROCClean().compute(plain_evidence([1, 1, 0, 0], logits, logits)).value == 1.0


@settings(deadline=None)  # shared cores
@given(arrays(np.float64, (4, 3), elements=st.floats(-8, 8)))
def test_log_odds_are_those_of_the_softmax(logits: np.ndarray) -> None:
    p = softmax(logits)
    np.testing.assert_allclose(log_odds(logits), np.log(p / (1 - p)), atol=1e-6)


def test_log_odds_of_an_impossible_class() -> None:
    np.testing.assert_allclose(log_odds(np.array([[-np.inf, 1.0, 3.0]])), [[-np.inf, -2.0, 2.0]], atol=1e-12)


def test_absent_class_is_not_averaged_in() -> None:
    logits = np.array([[3.0, 0.0, 9.0], [0.0, 3.0, 9.0], [3.0, 1.0, 9.0], [1.0, 3.0, 9.0]])
    assert AUROCClean().compute(plain_evidence([0, 1, 0, 1], logits, logits)).value == 1.0


def test_single_class_is_undefined_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    evidence = replace(draw_evidence(3), labels=np.zeros(240, dtype=int))
    with pytest.raises(UndefinedMetricError, match="needs two classes, the labels hold only 0"):
        AUROCClean().compute(evidence)
    with caplog.at_level(logging.INFO, logger="hansfree.metrics.base"):
        names = {score.metric for score in compute_scores(evidence)}
    assert not names & {"auroc_clean", "auroc_biased"}
    assert "accuracy_clean" in names
    assert "auroc_clean is left out" in caplog.text


def test_one_nan_row_makes_only_its_own_condition_undefined() -> None:
    evidence = draw_evidence(4)
    broken = evidence.logits_biased.copy()
    broken[7, 1] = np.nan
    evidence = replace(evidence, logits_biased=broken)
    assert AUROCClean().compute(evidence).value > 0.5
    with pytest.raises(UndefinedMetricError, match="no order"):
        AUROCBiased().compute(evidence)


def test_huge_logits_that_floats_cannot_tell_apart_have_equal_odds() -> None:
    odds = log_odds(np.array([[1e17, 1e17, -1e17], [3.0, 1.0, 2.0]]))
    assert np.isfinite(odds[0, :2]).all()
    assert odds[0, 0] == pytest.approx(odds[0, 1])
