"""Evidence on a bias that is in the scenes: the biased images are others than the clean ones, with their own labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    NO_PREDICTION,
    AUROCBiased,
    BalancedAccuracyBiased,
    Evidence,
    Metric,
    compute_scores,
    find_unavailable,
    predict_classes,
)
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


DERIVATIVES = ("tcav", "tcav_positions", "tcav_zero_share", "tcav_sensitivity")
INSERTION = ("flip_rate", "probability_change")
CLEAN = [0] * 40 + [1] * 60
BIASED = [1] * 25 + [0] * 50


def unpaired(clean: list[int], biased: list[int], labels_biased: list[int] = BIASED) -> Evidence:
    """Return evidence of 2 classes with these answers."""
    labels = np.array(labels_biased, dtype=int)
    answers = one_hot(biased, 2) if biased else np.zeros((0, 2))
    derivatives = np.linspace(-1, 1, len(biased))
    relevance = np.linspace(0, 1, len(biased))
    return plain_evidence(
        CLEAN, one_hot(clean, 2), answers, labels_biased=labels, derivatives=derivatives, relevance=relevance
    )


def test_each_condition_is_scored_by_its_own_labels() -> None:
    evidence = unpaired([0] * 20 + [1] * 20 + [1] * 40 + [0] * 20, [0] * 75)
    assert not evidence.is_paired
    assert evidence.labels_of("clean").tolist() == CLEAN
    assert evidence.labels_of("biased").tolist() == BIASED
    assert evidence.is_correct("biased").tolist() == [False] * 25 + [True] * 50
    scores = {score.metric: score for score in compute_scores(evidence, per_class=False)}
    assert (scores["accuracy_clean"].value, scores["accuracy_clean"].n) == (pytest.approx(3 / 5), 100)
    assert (scores["accuracy_biased"].value, scores["accuracy_biased"].n) == (pytest.approx(2 / 3), 75)
    assert scores["balanced_accuracy_clean"].value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert scores["balanced_accuracy_biased"].value == pytest.approx((1 + 0) / 2)
    assert scores["auroc_biased"].value == pytest.approx(0.5)
    classes = {(score.metric, score.group): score for score in compute_scores(evidence)}
    assert classes["sensitivity_clean", 0].value == pytest.approx(1 / 2)
    assert classes["sensitivity_biased", 1].value == 0
    assert classes["specificity_biased", 1].value == 1
    assert classes["specificity_clean", 1].n == 40


def test_what_compares_an_image_with_itself_is_left_out() -> None:
    evidence = unpaired([0] * 100, [0] * 75)
    assert not {score.metric for score in compute_scores(evidence)} & set(INSERTION)
    for name in INSERTION:
        with pytest.raises(UndefinedMetricError, match=f"{name} needs the same images"):
            Metric.named(name)().compute(evidence)


def test_no_number_is_given_for_few_images_with_the_artifact() -> None:
    """24 right answers are not 100 %: what cannot be known is neither a row nor a zero, and the reason is given."""
    evidence = unpaired(CLEAN, [0] * 24, [0] * 24)
    found = {score.metric for score in compute_scores(evidence)}
    whole = {"accuracy_worst_group"} | {name for name in Metric.members() if name.endswith("_clean")}
    assert found == whole
    unknown = {
        each.metric: each for each in find_unavailable(evidence.labels, evidence.labels_biased) if not each.group
    }
    assert unknown["accuracy_biased"].n == unknown["artifact_relevance"].n == 24
    assert unknown["balanced_accuracy_biased"].n == unknown["auroc_biased"].n == 0
    assert str(unknown["accuracy_biased"]) == "n/a (n = 24)"
    for name in (*unknown, *DERIVATIVES):
        given = replace(evidence, position_signs=np.ones((24, 3), dtype=int), n_positions=3)
        with pytest.raises(UndefinedMetricError, match=f"{name} is not available: .*25 images"):
            Metric.named(name)().compute(given)


def test_what_is_unknown_and_what_is_scored_are_all_there_is() -> None:
    """Whatever the counts: every score that evidence could have is given, or said to be unknown, and never both."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(0, 90))
        labels = np.sort(rng.integers(0, 2, n) * rng.integers(0, 2))
        evidence = unpaired(CLEAN, rng.integers(0, 2, n).tolist(), labels.tolist())
        evidence = replace(evidence, position_signs=np.ones((n, 3), dtype=int), n_positions=3)
        given = {(s.metric, s.group if Metric.named(s.metric).is_per_class else None) for s in compute_scores(evidence)}
        unknown = {(each.metric, each.group) for each in find_unavailable(evidence.labels, labels)}
        assert not given & unknown
        per_class = {(m, k) for m, metric in Metric.members().items() if metric.is_per_class for k in (0, 1)}
        whole = {(m, None) for m, metric in Metric.members().items() if not metric.is_per_class and m not in INSERTION}
        whole -= {(m, None) for m in DERIVATIVES if n < MIN_GROUP}  # of other images, where those are given
        assert given | unknown == per_class | whole


def test_derivatives_of_all_images_are_known_where_those_with_the_artifact_are_few() -> None:
    evidence = replace(unpaired(CLEAN, [0] * 7, [0] * 7), derivatives=np.linspace(-1, 3, 107))
    assert Metric.named("tcav")().compute(evidence).n == 107
    assert not {each.metric for each in find_unavailable(evidence.labels, evidence.labels_biased)} & set(DERIVATIVES)


def test_a_class_of_few_images_does_not_count_in_a_mean_over_classes() -> None:
    labels = [0] * 30 + [1] * 30 + [2] * 7
    answers = [0] * 30 + [1] * 15 + [0] * 15 + [0] * 7
    evidence = plain_evidence([0, 1, 2], one_hot([0, 1, 2], 3), one_hot(answers, 3), labels_biased=np.array(labels))
    score = BalancedAccuracyBiased().compute(evidence)
    assert (score.value, score.n) == (pytest.approx(0.75), 60)
    assert BalancedAccuracyBiased(least=1).compute(evidence).value == pytest.approx(0.5)
    inside = np.array(labels) < 2
    margins = evidence.logits_biased
    expected = [roc_auc_score(np.array(labels) == k, margins[:, k]) for k in (0, 1)]
    assert AUROCBiased().compute(evidence).value == pytest.approx(np.mean(expected), abs=0.02)
    assert inside.sum() == 60
    assert {each.group for each in find_unavailable(evidence.labels, np.array(labels)) if "sens" in each.metric} >= {2}


def test_the_worst_group_is_sought_in_both_sets() -> None:
    n = 30
    evidence = plain_evidence(
        [0] * n + [1] * n,
        one_hot([0] * n + [1] * n, 2),
        one_hot([0] * n + [0] * 26 + [1] * 4, 2),
        labels_biased=np.array([0] * n + [1] * n),
    )
    score = Metric.named("accuracy_worst_group")().compute(evidence)
    assert (score.value, score.n, score.group, score.artifact) == (pytest.approx(4 / n), n, 1, "with")
    few = replace(evidence, logits_biased=evidence.logits_biased[-24:], labels_biased=np.ones(24, dtype=int))
    assert Metric.named("accuracy_worst_group")().compute(few).artifact == "without"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 1], r"logits_biased of \(2, classes\)"),
        ([0, 1, 2], "Labels run from 0 to 2"),
        ([0, -1, 1], "Labels run from -1"),
        ([0.0, 1.0, 0.0], "labels_biased must be integers"),
        ([[0, 1, 1]], "1 dimension"),
    ],
)
def test_labels_that_do_not_fit_the_biased_images_are_refused(labels: list[object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        plain_evidence(CLEAN, one_hot(CLEAN, 2), one_hot([0, 1, 0], 2), labels_biased=np.array(labels))


def test_without_any_image_with_the_artifact_the_clean_ones_are_scored() -> None:
    """Most natural biases: no test image has the artifact, and nothing is claimed about those that will."""
    evidence = unpaired(CLEAN, [], [])
    scores = compute_scores(evidence)
    assert {score.metric for score in scores} == {
        *(name for name in Metric.members() if name.endswith("_clean")),
        "accuracy_worst_group",
    }
    assert {each.n for each in find_unavailable(evidence.labels, evidence.labels_biased)} == {0}
