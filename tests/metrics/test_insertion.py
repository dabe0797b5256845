from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import FlipRate, ProbabilityChange
from tests.metrics.examples import draw_evidence, one_hot, plain_evidence


def test_flip_rate_counts_changes_right_or_wrong() -> None:
    before, after = [0, 1, 1, 2, 2], [0, 0, 2, 2, 1]
    score = FlipRate().compute(plain_evidence([1] * 5, one_hot(before, 3), one_hot(after, 3)))
    assert score.value == 3 / 5
    assert score.stderr == pytest.approx(math.sqrt(0.6 * 0.4 / 5))
    assert score.n == 5


def test_lost_predictions_count_as_flips_on_either_side() -> None:
    good, broken = one_hot([0, 0, 0, 0], 2), one_hot([0, 0, 0, 0], 2)
    broken[:2, 1] = np.nan
    assert FlipRate().compute(plain_evidence([0] * 4, good, broken)).value == 0.5
    assert FlipRate().compute(plain_evidence([0] * 4, broken, good)).value == 0.5
    assert FlipRate().compute(plain_evidence([0] * 4, broken, broken)).value == 0.5


def test_probability_change_by_hand() -> None:
    evidence = draw_evidence(0, n=20)
    changes = []
    for before, after in zip(evidence.logits_clean, evidence.logits_biased):
        p_before = math.exp(before[0]) / sum(math.exp(z) for z in before)
        p_after = math.exp(after[0]) / sum(math.exp(z) for z in after)
        changes.append(p_after - p_before)
    mean = sum(changes) / 20
    variance = sum((change - mean) ** 2 for change in changes) / 19
    score = ProbabilityChange().compute(evidence)
    assert score.value == pytest.approx(mean)
    assert score.stderr == pytest.approx(math.sqrt(variance / 20))


def test_probability_change_looks_at_the_biased_class() -> None:
    evidence = draw_evidence(1)
    assert ProbabilityChange().compute(evidence).value > 0.1
    assert ProbabilityChange().compute(replace(evidence, biased_class=1)).value < 0


@settings(deadline=None)  # shared cores
@given(st.floats(-1e4, 1e4))
def test_a_common_offset_of_the_logits_changes_nothing(offset: float) -> None:
    evidence = draw_evidence(2, n=10)
    moved = replace(evidence, logits_biased=evidence.logits_biased + offset)
    expected = ProbabilityChange().compute(evidence).value
    assert ProbabilityChange().compute(moved).value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("field", ["logits_clean", "logits_biased"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_probability_of_a_broken_row_is_undefined(field: str, value: float) -> None:
    evidence = draw_evidence(3)
    logits = getattr(evidence, field).copy()
    logits[5, 2] = value
    with pytest.raises(UndefinedMetricError, match="NaN or infinite"):
        ProbabilityChange().compute(replace(evidence, **{field: logits}))


def test_a_class_that_is_ruled_out_has_probability_zero() -> None:
    clean, biased = one_hot([1, 1], 2), one_hot([1, 1], 2)
    clean[:, 0] = -np.inf
    biased[:, 1] = -np.inf
    assert ProbabilityChange().compute(plain_evidence([1, 1], clean, biased)).value == 1.0
