"""Evidence, and a natural bias: the biased images are others than the clean ones, with their own labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    NO_PREDICTION,
    BalancedAccuracyBiased,
    Evidence,
    Metric,
    compute_scores,
    find_unavailable,
    predict_classes,
)
from tests.metrics.examples import compute, draw_evidence, one_hot, plain_evidence

nan, inf = np.nan, np.inf
NO_IMAGE = np.zeros((0, 3))


def test_rows_without_a_finite_maximum_have_no_prediction() -> None:
    logits = np.array([[0, 2, 1], [0, nan, 1], [inf, 0, 0], [-inf, -inf, -inf], [-inf, 3, 4]])
    np.testing.assert_array_equal(predict_classes(logits), [1, NO_PREDICTION, NO_PREDICTION, NO_PREDICTION, 2])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"labels": np.zeros(3, dtype=int)}, "3 labels need"),
        ({"labels": np.full(240, 3)}, "3 logits allow 0 to 2"),
        ({"labels": np.full(240, -1)}, "from -1"),
        ({"biased_class": 3}, "The biased class is 3"),
        ({"biased_class": -1}, "The biased class is -1"),
        ({"logits_biased": np.zeros((240, 2))}, r"logits_biased of \(240, classes\)"),
        ({"labels_biased": np.zeros(2, dtype=int)}, r"logits_biased of \(2, classes\)"),
        ({"labels_biased": np.full(240, 3)}, "3 logits allow 0 to 2"),
        ({"labels": np.zeros(0, dtype=int), "logits_clean": NO_IMAGE, "logits_biased": NO_IMAGE}, "nothing to score"),
        ({"logits_clean": np.zeros((240, 1)), "logits_biased": np.zeros((240, 1))}, "nothing to score"),
    ],
)
def test_evidence_that_does_not_fit_together_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        replace(draw_evidence(0), **change)


DERIVATIVES = ("tcav", "tcav_positions", "tcav_zero_share", "tcav_sensitivity", "tcav_sensitivity_positions")
INSERTION = ("flip_rate", "probability_change")
CLEAN = [0] * 40 + [1] * 60
BIASED = [1] * 25 + [0] * 50


def unpaired(clean: list[int], biased: list[int], labels_biased: list[int] = BIASED) -> Evidence:
    """Return evidence of 2 classes with these answers."""
    n = len(biased)
    return plain_evidence(
        CLEAN,
        one_hot(clean, 2),
        one_hot(biased, 2) if n else np.zeros((0, 2)),
        labels_biased=np.array(labels_biased, dtype=int),
        derivatives=np.linspace(-1, 1, n),
        n_positions=3,
        position_signs=np.ones((n, 3), dtype=int),
        position_sizes=np.ones(n),
        relevance=np.linspace(0, 1, n),
    )


def test_each_condition_is_scored_by_its_own_labels() -> None:
    evidence = unpaired([0] * 20 + [1] * 20 + [1] * 40 + [0] * 20, [0] * 75)
    assert evidence.is_correct("biased").tolist() == [False] * 25 + [True] * 50
    assert [evidence.labels_of(condition).tolist() for condition in ("clean", "biased")] == [CLEAN, BIASED]
    scores = {(score.metric, score.group): score for score in compute_scores(evidence)}
    for name, value in {
        "accuracy_clean": 3 / 5,
        "accuracy_biased": 2 / 3,
        "balanced_accuracy_clean": (1 / 2 + 2 / 3) / 2,
        "balanced_accuracy_biased": (1 + 0) / 2,
        "auroc_biased": 0.5,
    }.items():
        assert scores[name, None].value == pytest.approx(value)
        assert scores[name, None].n == (100 if name.endswith("clean") else 75)
    assert scores["sensitivity_clean", 0].value == pytest.approx(1 / 2)
    assert scores["sensitivity_biased", 1].value == 0
    assert scores["specificity_biased", 1].value == 1
    assert scores["specificity_clean", 1].n == 40
    assert not {name for name, _ in scores} & set(INSERTION)  # which compare an image with itself
    for name in INSERTION:
        with pytest.raises(UndefinedMetricError, match=f"{name} needs the same images"):
            compute(name, evidence)


@pytest.mark.parametrize("n", [0, 24])
def test_no_number_is_given_for_few_images_with_the_artifact(n: int) -> None:
    """24 right answers are not 100 %: what cannot be known is neither a row nor a zero, and the reason is given."""
    evidence = unpaired(CLEAN, [0] * n, [0] * n)
    whole = {"accuracy_worst_group"} | {name for name in Metric.members() if name.endswith("_clean")}
    assert {score.metric for score in compute_scores(evidence)} == whole
    unknown = {
        each.metric: each for each in find_unavailable(evidence.labels, evidence.labels_biased) if not each.group
    }
    assert unknown["accuracy_biased"].n == unknown["artifact_relevance"].n == n
    assert unknown["balanced_accuracy_biased"].n == unknown["auroc_biased"].n == 0
    assert str(unknown["accuracy_biased"]) == f"n/a (n = {n})"
    for name in (*unknown, *DERIVATIVES):
        with pytest.raises(UndefinedMetricError, match=f"{name} is not available: .*25 images"):
            compute(name, evidence)
    known = replace(
        evidence, derivatives=np.linspace(-1, 3, 107), position_signs=None, position_sizes=None
    )  # of all images
    assert compute("tcav", known).n == 107
    assert not set(unknown) & set(DERIVATIVES)


def test_what_is_unknown_and_what_is_scored_are_all_there_is() -> None:
    """Whatever the counts: every score that evidence could have is given, or said to be unknown, and never both."""
    rng = np.random.default_rng(0)
    per_class = {(m, k) for m, metric in Metric.members().items() if metric.is_per_class for k in (0, 1)}
    for _ in range(40):
        n = int(rng.integers(0, 90))
        labels = np.sort(rng.integers(0, 2, n) * rng.integers(0, 2))
        evidence = unpaired(CLEAN, rng.integers(0, 2, n).tolist(), labels.tolist())
        given = {(s.metric, s.group if Metric.named(s.metric).is_per_class else None) for s in compute_scores(evidence)}
        unknown = {(each.metric, each.group) for each in find_unavailable(evidence.labels, labels)}
        assert not given & unknown
        whole = {(m, None) for m, metric in Metric.members().items() if not metric.is_per_class and m not in INSERTION}
        whole -= {(m, None) for m in DERIVATIVES if n < MIN_GROUP}  # of other images, where those are given
        assert given | unknown == per_class | whole


def test_a_class_of_few_images_does_not_count_in_a_mean_over_classes() -> None:
    labels = np.array([0] * 30 + [1] * 30 + [2] * 7)
    answers = [0] * 30 + [1] * 15 + [0] * 15 + [0] * 7
    evidence = plain_evidence([0, 1, 2], one_hot([0, 1, 2], 3), one_hot(answers, 3), labels_biased=labels)
    score = BalancedAccuracyBiased().compute(evidence)
    assert (score.value, score.n) == (pytest.approx(0.75), 60)
    assert BalancedAccuracyBiased().of(
        evidence.is_correct("biased"), evidence.labels_of("biased"), least=1
    ).value == pytest.approx(0.5)
    expected = [roc_auc_score(labels == k, evidence.logits_biased[:, k]) for k in (0, 1)]
    assert compute("auroc_biased", evidence).value == pytest.approx(np.mean(expected), abs=0.02)
    assert {each.group for each in find_unavailable(evidence.labels, labels) if "sens" in each.metric} >= {2}


def test_the_worst_group_is_sought_in_both_sets() -> None:
    n = 30
    labels = [0] * n + [1] * n
    answers = one_hot([0] * n + [0] * 26 + [1] * 4, 2)
    evidence = plain_evidence(labels, one_hot(labels, 2), answers, labels_biased=np.array(labels))
    score = compute("accuracy_worst_group", evidence)
    assert (score.value, score.n, score.group, score.artifact) == (pytest.approx(4 / n), n, 1, "with")
    few = replace(evidence, logits_biased=evidence.logits_biased[-24:], labels_biased=np.ones(24, dtype=int))
    assert compute("accuracy_worst_group", few).artifact == "without"
