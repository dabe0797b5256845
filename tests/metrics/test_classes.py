"""Sensitivity, specificity and AUROC of every class, against scikit-learn, and against counts written out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    AUROCClassBiased,
    AUROCClassClean,
    Metric,
    SensitivityBiased,
    SensitivityClean,
    SpecificityBiased,
    SpecificityClean,
    find_unknown,
)
from hansfree.metrics.accuracy import log_odds
from tests.metrics.examples import draw_evidence, one_hot, plain_evidence

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
        assert [score.group for score in scores] == ["class 0", "class 1", "class 2"]
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


def test_the_mean_over_the_classes_is_the_metric_over_all() -> None:
    evidence = draw_evidence(1)
    for per_class, over_all in (
        ("sensitivity_biased", "balanced_accuracy_biased"),
        ("auroc_class_clean", "auroc_clean"),
    ):
        scores = Metric.named(per_class)().compute_all(evidence)
        expected = Metric.named(over_all)().compute(evidence).value
        assert np.mean([score.value for score in scores]) == pytest.approx(expected)


def test_one_score_is_that_of_the_worst_class() -> None:
    evidence = draw_evidence(2)
    scores = SensitivityClean().compute_all(evidence)
    assert SensitivityClean().compute(evidence) == min(scores, key=lambda score: score.value)


def test_a_class_of_24_is_unknown_and_one_of_25_is_not() -> None:
    labels = [0] * 40 + [1] * MIN_GROUP + [2] * (MIN_GROUP - 1)
    evidence = plain_evidence(labels, one_hot(labels, 3), one_hot(labels, 3))
    for name in ("sensitivity_clean", "sensitivity_biased", "auroc_class_clean", "auroc_class_biased"):
        assert [score.group for score in Metric.named(name)().compute_all(evidence)] == ["class 0", "class 1"]
    # how often others are called by class 2 is known well, however few it has
    assert [score.n for score in SpecificityBiased().compute_all(evidence)] == [49, 64, 65]
    unknown = [each for each in find_unknown(evidence.labels, None) if each.group]
    assert {(each.group, each.n) for each in unknown} == {("class 2", 24)}
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


def test_a_class_that_is_never_answered() -> None:
    """What the verdict looks for: sensitivity 0 and specificity 1."""
    evidence = draw_evidence(4)
    logits = evidence.logits_clean.copy()
    logits[:, 1] = -np.inf
    blind = replace(evidence, logits_clean=logits)
    assert SensitivityClean().compute_all(blind)[1].value == 0
    assert SpecificityClean().compute_all(blind)[1].value == 1
