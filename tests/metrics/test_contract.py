"""What every registered metric keeps, a new one from the day it is written."""

from __future__ import annotations

import logging
import math
from dataclasses import fields, replace

import numpy as np
import pytest

from hansfree.errors import HansfreeError, UndefinedMetricError
from hansfree.metrics import Evidence, Metric, Score, compute_scores
from tests.metrics.examples import compute, draw_evidence

# fmt: off
NAMES = [
    "accuracy_clean", "accuracy_biased", "balanced_accuracy_clean", "balanced_accuracy_biased", "auroc_clean",
    "auroc_biased", "accuracy_worst_group", "flip_rate", "probability_change", "tcav", "tcav_positions",
    "tcav_zero_share", "tcav_sensitivity", "tcav_sensitivity_positions", "artifact_relevance",
    "sensitivity_clean", "sensitivity_biased", "specificity_clean", "specificity_biased",
    "auroc_class_clean", "auroc_class_biased",
]
# fmt: on
every_metric = pytest.mark.parametrize("name", list(Metric.members()))


def by_name(evidence: Evidence) -> dict[str, Score]:
    """Return the scores by name; those of a class by name and class."""
    return {
        f"{score.metric} {score.group}" if Metric.named(score.metric).is_per_class else score.metric: score
        for score in compute_scores(evidence)
    }


every_score = pytest.mark.parametrize("name", list(by_name(draw_evidence(0))))


def test_the_names_and_their_order_are_those_of_results_csv() -> None:
    evidence = draw_evidence(0)
    assert list(Metric.members()) == NAMES
    assert list(dict.fromkeys(score.metric for score in compute_scores(evidence))) == NAMES
    assert compute_scores(evidence, per_class=False) == [
        score for score in compute_scores(evidence) if not Metric.named(score.metric).is_per_class
    ]


@every_metric
def test_score_is_finite_and_says_over_how_many_images(name: str) -> None:
    evidence = draw_evidence(1)
    metric = Metric.named(name)
    score = metric().compute(evidence)
    assert score.metric == name
    assert math.isfinite(score.value)
    assert 0 < score.stderr < 1
    assert 0 < score.n <= len(evidence.labels)
    assert type(score.value) is type(score.stderr) is float
    assert type(score.n) is int
    assert metric.ideal in (0.0, 0.5, 1.0)
    assert metric.label
    assert metric.description.endswith(".")


@every_metric
def test_order_of_images_does_not_matter(name: str) -> None:
    evidence = draw_evidence(2)
    order = np.random.default_rng(0).permutation(len(evidence.labels))
    per_image = [each.name for each in fields(evidence) if np.ndim(getattr(evidence, each.name))]
    a = compute(name, evidence)
    b = compute(name, replace(evidence, **{field: getattr(evidence, field)[order] for field in per_image}))
    assert (a.value, a.stderr, a.n, a.group) == (pytest.approx(b.value), pytest.approx(b.stderr), b.n, b.group)


@every_metric
def test_missing_needs_leave_the_metric_out_and_are_an_error_if_asked_for(name: str) -> None:
    metric = Metric.named(name)
    bare = replace(draw_evidence(3), derivatives=None, position_signs=None, position_sizes=None, relevance=None)
    assert (name in {score.metric for score in compute_scores(bare)}) == (not metric.needs)
    if metric.needs:
        with pytest.raises(UndefinedMetricError, match=f"{name} needs {metric.needs[0]}"):
            metric().compute(bare)


# Monte Carlo: the spread of the value over 500 redrawn test sets (known to 3 %) against the mean claimed error.
@pytest.fixture(scope="module")
def redrawn() -> list[dict[str, Score]]:
    return [by_name(draw_evidence(1000 + seed)) for seed in range(500)]


@every_score
def test_standard_error_is_the_spread_over_redrawn_test_sets(name: str, redrawn: list[dict[str, Score]]) -> None:
    values = np.array([scores[name].value for scores in redrawn])
    claimed = np.array([scores[name].stderr for scores in redrawn])
    assert np.sqrt(np.mean(claimed**2)) == pytest.approx(values.std(ddof=1), rel=0.15)


def test_nan_model_scores_worst_or_is_left_out_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    evidence = draw_evidence(4)
    nan = np.full_like(evidence.logits_clean, np.nan)
    no_number = np.full(len(evidence.labels), np.nan)
    signs = np.zeros_like(evidence.position_signs)
    lost = {"logits_clean": nan, "logits_biased": nan, "derivatives": no_number, "relevance": no_number}
    with caplog.at_level(logging.INFO, logger="hansfree.metrics.base"):
        scores = by_name(replace(evidence, **lost, position_signs=signs))
    worst = {name: 0.0 for name in NAMES if "accuracy" in name} | {"flip_rate": 1.0}
    worst |= {name: 0.0 for name in by_name(evidence) if "ity_" in name and " " in name}
    assert {name: score.value for name, score in scores.items()} == worst
    assert {record.getMessage().split()[0] for record in caplog.records} == set(NAMES) - {
        name.split()[0] for name in worst
    }


def test_a_fault_that_is_not_an_undefined_metric_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Metric, evidence: Evidence) -> Score:
        raise HansfreeError("another fault")

    monkeypatch.setattr(Metric.named("tcav"), "compute", fail)
    with pytest.raises(HansfreeError, match="another fault"):
        compute_scores(draw_evidence(6))
