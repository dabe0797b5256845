from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hansfree.errors import UndefinedMetricError
from hansfree.metrics import (
    TCAV,
    ArtifactRelevance,
    Evidence,
    FlipRate,
    Metric,
    ProbabilityChange,
    TCAVPositions,
    TCAVSensitivity,
    TCAVZeroShare,
)
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


@pytest.mark.parametrize("field", ["logits_clean", "logits_biased"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_probability_of_a_broken_row_is_undefined(field: str, value: float) -> None:
    evidence = draw_evidence(3)
    logits = getattr(evidence, field).copy()
    logits[5, 2] = value
    with pytest.raises(UndefinedMetricError, match="NaN or infinite"):
        ProbabilityChange().compute(replace(evidence, **{field: logits}))


ALL = [TCAV, TCAVPositions, TCAVZeroShare, TCAVSensitivity]


def from_positions(positions: np.ndarray) -> Evidence:
    """Return evidence whose derivatives are these, (images, positions)."""
    signs = np.stack([(positions > 0).sum(1), (positions < 0).sum(1), (positions == 0).sum(1)], axis=1)
    logits = one_hot([0, 1], 2)
    return plain_evidence(
        [0, 1],
        logits,
        logits,
        derivatives=positions.sum(axis=1),
        n_positions=positions.shape[1],
        position_signs=signs,
    )


POSITIONS = np.array([[2.0, -1.0, 0.0], [-1.0, -1.0, 1.0], [1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])


def test_values_by_hand() -> None:
    evidence = from_positions(POSITIONS)
    assert TCAV().compute(evidence).value == 2 / 4  # sums 1, -1, 6, 0
    assert TCAV().compute(evidence).stderr == pytest.approx(math.sqrt(0.5 * 0.5 / 4))
    assert TCAVPositions().compute(evidence).value == 5 / 8
    residuals = [1 - 2 * 5 / 8, 1 - 3 * 5 / 8, 3 - 3 * 5 / 8, 0.0]
    expected = math.sqrt(4 / 3 * sum(residual**2 for residual in residuals)) / 8
    assert TCAVPositions().compute(evidence).stderr == pytest.approx(expected)
    assert TCAVZeroShare().compute(evidence).value == pytest.approx(4 / 12)
    assert TCAVSensitivity().compute(evidence).value == pytest.approx((1 + 1 + 6 + 0) / 4 / 3)
    assert all(metric().compute(evidence).n == 4 for metric in ALL)


def test_sensitivity_from_the_gradient_as_the_paper_writes_it() -> None:
    """|mean over positions of the gradient, times the unit direction|, image by image."""
    rng = np.random.default_rng(0)
    gradients, direction = rng.normal(size=(6, 4, 5)), rng.normal(size=4)  # images, channels, positions
    direction /= np.linalg.norm(direction)
    expected = [abs(gradient.mean(axis=1) @ direction) for gradient in gradients]
    score = TCAVSensitivity().compute(from_positions(np.einsum("ncp,c->np", gradients, direction)))
    assert score.value == pytest.approx(np.mean(expected))
    assert score.stderr == pytest.approx(np.std(expected, ddof=1) / math.sqrt(6))


def test_positions_that_go_together_count_once() -> None:
    """Perfectly correlated positions: the naive error is sqrt(positions) times too small."""
    n, n_positions = 400, 49
    signs = np.where(np.random.default_rng(0).random(n) < 0.6, 1.0, -1.0)
    score = TCAVPositions().compute(from_positions(np.tile(signs[:, None], (1, n_positions))))
    naive = math.sqrt(score.value * (1 - score.value) / (n * n_positions))
    assert score.stderr / naive == pytest.approx(math.sqrt(n_positions), rel=0.01)
    assert score.stderr == pytest.approx(math.sqrt(score.value * (1 - score.value) / n), rel=0.01)


def test_zero_share_is_over_images_where_positions_are_unknown() -> None:
    evidence = replace(from_positions(POSITIONS), position_signs=None)
    score = TCAVZeroShare().compute(evidence)
    assert score.value == 1 / 4
    assert score.stderr == pytest.approx(math.sqrt(0.25 * 0.75 / 4))


def test_all_zero_derivatives_leave_the_positions_undefined() -> None:
    evidence = from_positions(np.zeros((4, 3)))
    with pytest.raises(UndefinedMetricError, match="4 image\\(s\\) have 0 of them"):
        TCAVPositions().compute(evidence)
    assert TCAVZeroShare().compute(evidence).value == 1
    assert TCAV().compute(evidence).value == 0


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_derivative_that_is_not_finite_makes_all_undefined(metric: type[Metric], value: float) -> None:
    evidence = from_positions(POSITIONS)
    derivatives = evidence.derivatives.copy()
    derivatives[1] = value
    with pytest.raises(UndefinedMetricError, match="1 of 4 derivatives are not finite"):
        metric().compute(replace(evidence, derivatives=derivatives))


@pytest.mark.parametrize("metric", [TCAVPositions, TCAVZeroShare])
def test_a_position_without_sign_is_not_dropped_in_silence(metric: type[Metric]) -> None:
    with pytest.raises(UndefinedMetricError, match="no sign"):
        metric().compute(replace(from_positions(POSITIONS), n_positions=4))


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
