"""Sensitivity, specificity and AUROC of every class, against scikit-learn, and against counts written out."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import confusion_matrix, roc_auc_score

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    AccuracyBiased,
    AccuracyClean,
    AccuracyWorstGroup,
    AUROCBiased,
    AUROCClassBiased,
    AUROCClassClean,
    AUROCClean,
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    Metric,
    SensitivityBiased,
    SensitivityClean,
    SpecificityBiased,
    SpecificityClean,
    chance_level,
    compute_scores,
    find_unavailable,
    majority_rate,
)
from hansfree.metrics.accuracy import log_odds
from tests.metrics.examples import draw_evidence, one_hot, plain_evidence

LABELS = [0, 0, 0, 0, 0, 0, 2, 2]  # class 1 is absent
CLEAN = [0, 0, 0, 0, 0, 2, 2, 0]
BIASED = [0, 0, 0, 0, 0, 0, 0, 0]
EVIDENCE = plain_evidence(LABELS, one_hot(CLEAN, 3), one_hot(BIASED, 3))


def test_accuracy_by_hand() -> None:
    clean, biased = AccuracyClean().compute(EVIDENCE), AccuracyBiased().compute(EVIDENCE)
    assert clean.value == 6 / 8
    assert clean.stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 8))
    assert biased.value == 6 / 8
    assert clean.n == biased.n == 8


def test_balanced_accuracy_by_hand_over_the_classes_present() -> None:
    clean, biased = BalancedAccuracyClean().compute(EVIDENCE), BalancedAccuracyBiased().compute(EVIDENCE)
    assert clean.value == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert clean.stderr == pytest.approx(math.sqrt(5 / 36 / 6 + 1 / 4 / 2) / 2)
    assert biased.value == 0.5  # the collapsed answer that plain accuracy does not punish
    assert biased.stderr == 0


def test_an_image_without_prediction_is_wrong_even_where_argmax_would_be_right() -> None:
    logits = one_hot([0, 1], 2)
    logits[0, 0] = np.nan
    assert logits[0].argmax() == 0
    evidence = plain_evidence([0, 1], logits, logits)
    assert AccuracyClean().compute(evidence).value == 0.5


def test_worst_group_is_named_and_small_groups_do_not_count() -> None:
    labels = [0] * 40 + [1] * MIN_GROUP + [2] * (MIN_GROUP - 1)
    clean = [0] * 40 + [1] * 20 + [0] * 5 + [0] * 24  # class 2 is always wrong, but too small to be known
    biased = [0] * 40 + [1] * 10 + [0] * 15 + [0] * 24
    score = AccuracyWorstGroup().compute(plain_evidence(labels, one_hot(clean, 3), one_hot(biased, 3)))
    assert score.value == 10 / 25
    assert score.stderr == pytest.approx(math.sqrt(0.4 * 0.6 / 25))
    assert score.n == 25
    assert (score.group, score.artifact) == (1, "with")


def test_majority_rate() -> None:
    assert majority_rate(np.array([3, 0, 3, 3])) == 0.75
    with pytest.raises(DataError, match="at least 1 label"):
        majority_rate(np.array([], dtype=int))


def test_chance_is_that_of_the_classes_present() -> None:
    """A test set of two classes out of four: a constant answer is right for one of the two, or for none."""
    labels = np.array([0] * 10 + [3] * 90)
    assert chance_level(labels) == 0.5
    with pytest.raises(DataError, match="at least 1 label"):
        chance_level(labels[:0])


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


def test_confident_logits_keep_their_order_where_the_softmax_rounds_to_one() -> None:
    logits = np.array([[50.0, 0.0], [60.0, 0.0], [70.0, 0.0], [80.0, 0.0]])
    assert np.unique(softmax(logits)[:, 0]).size == 1
    assert AUROCClean().compute(plain_evidence([1, 1, 0, 0], logits, logits)).value == 1.0


@settings(deadline=None)  # shared cores
@given(arrays(np.float64, (4, 3), elements=st.floats(-8, 8)))
def test_log_odds_are_those_of_the_softmax(logits: np.ndarray) -> None:
    p = softmax(logits)
    np.testing.assert_allclose(log_odds(logits), np.log(p / (1 - p)), atol=1e-6)


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


CONDITIONS = [
    ("clean", SensitivityClean, SpecificityClean, AUROCClassClean),
    ("biased", SensitivityBiased, SpecificityBiased, AUROCClassBiased),
]


@pytest.mark.parametrize(("condition", "sensitivity", "specificity", "area"), CONDITIONS)
def test_values_agree_with_scikit_learn(
    condition: str, sensitivity: type[Metric], specificity: type[Metric], area: type[Metric]
) -> None:
    evidence = draw_evidence(0)
    logits = evidence.logits(condition)  # type: ignore[arg-type]
    counts = confusion_matrix(evidence.labels, logits.argmax(axis=1))
    found = {metric: metric().compute_all(evidence) for metric in (sensitivity, specificity, area)}
    for scores in found.values():
        assert [score.group for score in scores] == [0, 1, 2]
    for k in range(3):
        hits, missed = counts[k, k], counts[k].sum() - counts[k, k]
        false_alarms = counts[:, k].sum() - hits
        rejected = counts.sum() - hits - missed - false_alarms
        score = found[sensitivity][k]
        assert score.value == pytest.approx(hits / (hits + missed))
        assert score.stderr == pytest.approx(math.sqrt(score.value * (1 - score.value) / (hits + missed)))
        assert score.n == hits + missed
        score = found[specificity][k]
        assert score.value == pytest.approx(rejected / (rejected + false_alarms))
        assert score.n == rejected + false_alarms
        expected = roc_auc_score(evidence.labels == k, log_odds(logits)[:, k])
        assert found[area][k].value == pytest.approx(expected, abs=1e-12)
        assert found[area][k].n == len(evidence.labels)


def test_a_class_of_24_is_unknown_and_one_of_25_is_not() -> None:
    labels = [0] * 40 + [1] * MIN_GROUP + [2] * (MIN_GROUP - 1)
    evidence = plain_evidence(labels, one_hot(labels, 3), one_hot(labels, 3))
    for name in ("sensitivity_clean", "sensitivity_biased", "auroc_class_clean", "auroc_class_biased"):
        assert [score.group for score in Metric.named(name)().compute_all(evidence)] == [0, 1]
    # how often others are called by class 2 is known well, however few it has
    assert [score.n for score in SpecificityBiased().compute_all(evidence)] == [49, 64, 65]
    unknown = [each for each in find_unavailable(evidence.labels, None) if each.group]
    assert {(each.group, each.n) for each in unknown} == {(2, 24)}
    assert {each.metric.partition("_")[0] for each in unknown} == {"sensitivity", "auroc"}


def test_no_large_class_leaves_it_undefined() -> None:
    labels = [0] * 20 + [1] * 20
    evidence = plain_evidence(labels, one_hot(labels, 2), one_hot(labels, 2))
    assert SensitivityClean().compute_all(evidence) == []
    with pytest.raises(UndefinedMetricError, match="no class has 25 images"):
        SensitivityClean().compute(evidence)


def test_a_model_without_answers_is_neither_sensitive_nor_specific() -> None:
    evidence = draw_evidence(3)
    nan = replace(evidence, logits_clean=np.full_like(evidence.logits_clean, np.nan))
    for metric in (SensitivityClean, SpecificityClean):
        assert {score.value for score in metric().compute_all(nan)} == {0.0}
    with pytest.raises(UndefinedMetricError, match="no order"):
        AUROCClassClean().compute_all(nan)
