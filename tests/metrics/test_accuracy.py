"""Accuracy, AUROC and the scores of every class, against scikit-learn, and against counts written out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import confusion_matrix, roc_auc_score

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    Condition,
    Metric,
    accuracies,
    chance_level,
    find_unavailable,
    log_odds,
    majority_rate,
)
from tests.metrics.examples import compute, draw_evidence, one_hot, plain_evidence

LABELS = [0, 0, 0, 0, 0, 0, 2, 2]  # class 1 is absent
EVIDENCE = plain_evidence(LABELS, one_hot([0, 0, 0, 0, 0, 2, 2, 0], 3), one_hot([0] * 8, 3))
GROUPS = [0] * 40 + [1] * MIN_GROUP + [2] * (MIN_GROUP - 1)


def test_accuracies_by_hand_over_the_classes_present() -> None:
    for name in ("accuracy_clean", "accuracy_biased"):
        score = compute(name, EVIDENCE)
        assert (score.value, score.n) == (6 / 8, 8)
        assert score.stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 8))
    clean, biased = BalancedAccuracyClean().compute(EVIDENCE), BalancedAccuracyBiased().compute(EVIDENCE)
    assert clean.value == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert clean.stderr == pytest.approx(math.sqrt(5 / 36 / 6 + 1 / 4 / 2) / 2)
    assert (biased.value, biased.stderr) == (0.5, 0)  # the collapsed answer that plain accuracy does not punish


def test_worst_group_is_named_and_small_groups_do_not_count() -> None:
    clean = [0] * 40 + [1] * 20 + [0] * 5 + [0] * 24  # class 2 is always wrong, but too small to be known
    biased = [0] * 40 + [1] * 10 + [0] * 15 + [0] * 24
    score = compute("accuracy_worst_group", plain_evidence(GROUPS, one_hot(clean, 3), one_hot(biased, 3)))
    assert (score.value, score.n, score.group, score.artifact) == (10 / 25, 25, 1, "with")
    assert score.stderr == pytest.approx(math.sqrt(0.4 * 0.6 / 25))


@pytest.mark.parametrize("labels_biased", [None, np.array([0] * 30 + [2] * 25)])
def test_accuracies_of_predictions_are_the_metrics(labels_biased: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    clean, biased = rng.integers(0, 3, 89), rng.integers(0, 3, 89 if labels_biased is None else 55)
    logits = one_hot(clean.tolist(), 3), one_hot(biased.tolist(), 3)
    evidence = plain_evidence(GROUPS, *logits, labels_biased=labels_biased)
    names = ("accuracy_clean", "balanced_accuracy_clean", "accuracy_biased", "balanced_accuracy_biased")
    found = accuracies(clean, biased, np.array(GROUPS), labels_biased)
    assert found == [compute(name, evidence) for name in names]
    assert len(accuracies(clean, biased[:9], np.array(GROUPS), np.zeros(9, dtype=int))) == 2


def test_constant_answers() -> None:
    """Of a test set of two classes out of four, a constant answer is right for one of the two, or for none."""
    assert majority_rate(np.array([3, 0, 3, 3])) == 0.75
    assert chance_level(np.array([0] * 10 + [3] * 90)) == 0.5


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("condition", ["clean", "biased"])
def test_values_agree_with_scikit_learn(condition: Condition) -> None:
    evidence = draw_evidence(0)
    logits, labels = evidence.logits(condition), evidence.labels
    expected = roc_auc_score(labels, softmax(logits), multi_class="ovr")
    assert compute(f"auroc_{condition}", evidence).value == pytest.approx(expected, abs=1e-12)
    counts = confusion_matrix(labels, logits.argmax(axis=1))
    sensitivity, specificity, area = (
        Metric.named(f"{name}_{condition}")().compute_all(evidence)
        for name in ("sensitivity", "specificity", "auroc_class")
    )
    assert [score.group for score in (*sensitivity, *specificity, *area)] == [0, 1, 2] * 3
    for k in range(3):
        hits, missed = counts[k, k], counts[k].sum() - counts[k, k]
        false_alarms = counts[:, k].sum() - hits
        rejected = counts.sum() - hits - missed - false_alarms
        score = sensitivity[k]
        assert (score.value, score.n) == (pytest.approx(hits / (hits + missed)), hits + missed)
        assert score.stderr == pytest.approx(math.sqrt(score.value * (1 - score.value) / (hits + missed)))
        score = specificity[k]
        assert score.value == pytest.approx(rejected / (rejected + false_alarms))
        assert score.n == rejected + false_alarms
        expected = roc_auc_score(labels == k, log_odds(logits)[:, k])
        assert (area[k].value, area[k].n) == (pytest.approx(expected, abs=1e-12), len(labels))


@given(arrays(np.float64, (4, 3), elements=st.floats(-8, 8)))
def test_log_odds_are_those_of_the_softmax(logits: np.ndarray) -> None:
    p = softmax(logits)
    np.testing.assert_allclose(log_odds(logits), np.log(p / (1 - p)), atol=1e-6)


def test_one_class_has_no_curve_and_a_broken_row_none_in_its_own_condition() -> None:
    evidence = draw_evidence(4)
    with pytest.raises(UndefinedMetricError, match="needs two classes, the labels hold only 0"):
        compute("auroc_clean", replace(evidence, labels=np.zeros(240, dtype=int)))
    broken = evidence.logits_biased.copy()
    broken[7, 1] = np.nan
    evidence = replace(evidence, logits_biased=broken)
    assert compute("auroc_clean", evidence).value > 0.5
    for name in ("auroc_biased", "auroc_class_biased"):
        with pytest.raises(UndefinedMetricError, match="no order"):
            compute(name, evidence)


def test_a_class_of_24_is_unknown_and_one_of_25_is_not() -> None:
    evidence = plain_evidence(GROUPS, one_hot(GROUPS, 3), one_hot(GROUPS, 3))
    for name in ("sensitivity_clean", "sensitivity_biased", "auroc_class_clean", "auroc_class_biased"):
        assert [score.group for score in Metric.named(name)().compute_all(evidence)] == [0, 1]
    # how often others are called by class 2 is known well, however few it has
    assert [score.n for score in Metric.named("specificity_biased")().compute_all(evidence)] == [49, 64, 65]
    unknown = [each for each in find_unavailable(evidence.labels, None) if each.group]
    assert {(each.group, each.n) for each in unknown} == {(2, 24)}
    assert {each.metric.partition("_")[0] for each in unknown} == {"sensitivity", "auroc"}
    few = plain_evidence([0] * 20 + [1] * 20, np.zeros((40, 2)), np.zeros((40, 2)))
    assert Metric.named("sensitivity_clean")().compute_all(few) == []
    with pytest.raises(UndefinedMetricError, match="no class has 25 images"):
        compute("sensitivity_clean", few)
