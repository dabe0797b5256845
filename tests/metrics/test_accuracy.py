from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from hansfree.metrics import AccuracyBiased, AccuracyClean, BalancedAccuracyBiased, BalancedAccuracyClean
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


def test_balanced_accuracy_agrees_with_scikit_learn() -> None:
    evidence = draw_evidence(0)
    expected = balanced_accuracy_score(evidence.labels, evidence.logits_biased.argmax(axis=1))
    assert BalancedAccuracyBiased().compute(evidence).value == pytest.approx(expected)


def test_an_image_without_prediction_is_wrong_even_where_argmax_would_be_right() -> None:
    logits = one_hot([0, 1], 2)
    logits[0, 0] = np.nan
    assert logits[0].argmax() == 0
    evidence = plain_evidence([0, 1], logits, logits)
    assert AccuracyClean().compute(evidence).value == 0.5
