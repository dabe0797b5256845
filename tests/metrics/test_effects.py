"""What the artifact does to a model: flips, changes of probability, TCAV and relevance, by hand and from the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import Evidence
from tests.metrics.examples import compute, draw_evidence, one_hot, plain_evidence, position_facts


def test_flip_rate_counts_changes_right_or_wrong() -> None:
    before, after = [0, 1, 1, 2, 2], [0, 0, 2, 2, 1]
    score = compute("flip_rate", plain_evidence([1] * 5, one_hot(before, 3), one_hot(after, 3)))
    assert (score.value, score.n) == (3 / 5, 5)
    assert score.stderr == pytest.approx(math.sqrt(0.6 * 0.4 / 5))
    good, broken = one_hot([0, 0, 0, 0], 2), one_hot([0, 0, 0, 0], 2)
    broken[:2, 1] = np.nan  # a lost prediction is a flip, on either side
    for logits in ((good, broken), (broken, good), (broken, broken)):
        assert compute("flip_rate", plain_evidence([0] * 4, *logits)).value == 0.5


def test_probability_change_by_hand() -> None:
    evidence = draw_evidence(0, n=20)
    changes = []
    for before, after in zip(evidence.logits_clean, evidence.logits_biased):
        p_before = math.exp(before[0]) / sum(math.exp(z) for z in before)
        p_after = math.exp(after[0]) / sum(math.exp(z) for z in after)
        changes.append(p_after - p_before)
    mean = sum(changes) / 20
    variance = sum((change - mean) ** 2 for change in changes) / 19
    score = compute("probability_change", evidence)
    assert (score.value, score.stderr) == pytest.approx((mean, math.sqrt(variance / 20)))


@pytest.mark.parametrize("field", ["logits_clean", "logits_biased"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_probability_of_a_broken_row_is_undefined(field: str, value: float) -> None:
    evidence = draw_evidence(3)
    logits = getattr(evidence, field).copy()
    logits[5, 2] = value
    with pytest.raises(UndefinedMetricError, match="NaN or infinite"):
        compute("probability_change", replace(evidence, **{field: logits}))


TCAV = ("tcav", "tcav_positions", "tcav_zero_share", "tcav_sensitivity", "tcav_sensitivity_positions")
LOGITS = one_hot([0, 1], 2)
POSITIONS = np.array([[2.0, -1.0, 0.0], [-1.0, -1.0, 1.0], [1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])


def from_positions(positions: np.ndarray) -> Evidence:
    return plain_evidence([0, 1], LOGITS, LOGITS, **position_facts(positions))


def test_values_by_hand() -> None:
    evidence = from_positions(POSITIONS)
    tcav, positions, zeros, sensitivity, sizes = (compute(name, evidence) for name in TCAV)
    assert tcav.value == 2 / 4  # sums 1, -1, 6, 0
    assert tcav.stderr == pytest.approx(math.sqrt(0.5 * 0.5 / 4))
    assert positions.value == 5 / 8
    residuals = [1 - 2 * 5 / 8, 1 - 3 * 5 / 8, 3 - 3 * 5 / 8, 0.0]
    assert positions.stderr == pytest.approx(math.sqrt(4 / 3 * sum(residual**2 for residual in residuals)) / 8)
    assert zeros.value == pytest.approx(4 / 12)
    assert sensitivity.value == pytest.approx((1 + 1 + 6 + 0) / 4 / 3)
    assert sizes.value == pytest.approx((3 + 3 + 6 + 0) / 12)
    assert {score.n for score in (tcav, positions, zeros, sensitivity, sizes)} == {4}
    without = compute("tcav_zero_share", replace(evidence, position_signs=None))  # over images, where that is all
    assert (without.value, without.stderr) == (1 / 4, pytest.approx(math.sqrt(0.25 * 0.75 / 4)))


@pytest.mark.parametrize("part", ["test", "val"])
def test_the_published_numbers(published: Mapping[str, np.ndarray], part: str) -> None:
    """Of the paper's code, which counts all positions; its sensitivity is the one over positions, too."""
    evidence = from_positions(published[f"tcav_{part}_dots_positions"].reshape(len(published[f"tcav_{part}_grad"]), -1))
    for name, key in {
        "tcav_positions": "tcav_quotient", "tcav": "mean_tcav_quotient",
        "tcav_sensitivity_positions": "mean_tcav_sensitivity",
    }.items():  # fmt: skip
        assert compute(name, evidence).value == pytest.approx(float(published[f"tcav_{part}_{key}"]), rel=1e-6), name


@pytest.mark.parametrize("name", TCAV)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_derivative_that_is_not_finite_makes_all_undefined(name: str, value: float) -> None:
    evidence = from_positions(POSITIONS)
    derivatives = evidence.derivatives.copy()
    derivatives[1] = value
    with pytest.raises(UndefinedMetricError, match="1 of 4 derivatives are not finite"):
        compute(name, replace(evidence, derivatives=derivatives))


@pytest.mark.parametrize("name", ["tcav_positions", "tcav_zero_share"])
def test_a_position_without_sign_is_not_dropped_in_silence(name: str) -> None:
    with pytest.raises(UndefinedMetricError, match="no sign"):
        compute(name, replace(from_positions(POSITIONS), n_positions=4))


def test_images_without_a_share_of_relevance_are_left_out_and_not_counted() -> None:
    def relevance(*values: float) -> Evidence:
        return plain_evidence([0, 1], LOGITS, LOGITS, relevance=np.array(values))

    score = compute("artifact_relevance", relevance(0.2, np.nan, 0.4, 0.9))
    assert (score.value, score.n) == (pytest.approx(0.5), 3)
    assert score.stderr == pytest.approx(math.sqrt((0.09 + 0.01 + 0.16) / 2 / 3))
    for few in ((), (np.nan, np.nan), (np.nan, 0.3)):
        with pytest.raises(UndefinedMetricError, match="at least 2 images"):
            compute("artifact_relevance", relevance(*few))
