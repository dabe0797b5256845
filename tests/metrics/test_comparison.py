"""Models on the same images: every difference is that of the two scores, and what is unknown is left out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from hansfree.metrics import (
    NO_PREDICTION,
    Answers,
    Evidence,
    Metric,
    compare_answers,
    compare_classes,
    compare_probability_changes,
    compute_scores,
    lost_classes,
    mcnemar,
    predict_classes,
    score_intervals,
)
from tests.metrics.examples import compute, plain_evidence

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1, 2], (60, 40, 30))
PAIRED = {"accuracy_clean", "balanced_accuracy_clean", "accuracy_biased", "balanced_accuracy_biased"}
PAIRED |= {"specificity_biased"}  # of the biased class


def logits_of(labels: np.ndarray, skill: float) -> np.ndarray:
    logits = RNG.normal(size=(len(labels), 3))
    logits[np.arange(len(labels)), labels] += skill
    return logits


def evidence(labels_biased: np.ndarray | None = None, *, skill: float = 1.5) -> Evidence:
    biased = logits_of(LABELS if labels_biased is None else labels_biased, skill / 2)
    return plain_evidence(LABELS.tolist(), logits_of(LABELS, skill), biased, labels_biased=labels_biased)


def answers(models: Mapping[str, Evidence]) -> dict[str, Answers]:
    return {
        name: {"clean": predict_classes(each.logits_clean), "biased": predict_classes(each.logits_biased)}
        for name, each in models.items()
    }


@pytest.mark.parametrize("labels_biased", [None, np.repeat([0, 1, 2], (50, 30, 5))], ids=["inserted", "natural"])
def test_differences_are_those_of_the_scores(labels_biased: np.ndarray | None) -> None:
    """A class of five natural images counts in neither balanced accuracy."""
    models = {name: evidence(labels_biased, skill=skill) for name, skill in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
    found = compare_answers(answers(models), LABELS, labels_biased, biased_class=0, seed=0)
    assert [(each.method, each.rival) for each in found[:: len(found) // 3]] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert {each.metric for each in found} == PAIRED | ({"flip_rate"} if labels_biased is None else set())
    scores = {
        name: {score.metric: score for score in compute_scores(each) if score.group in (None, 0)}
        for name, each in models.items()
    }
    for each in found:
        expected = scores[each.method][each.metric].value - scores[each.rival][each.metric].value
        assert each.value == pytest.approx(expected)
        assert each.low < each.value < each.high
        assert (each.p is None) == each.metric.startswith("balanced")
        if labels_biased is None and each.metric == "accuracy_clean":
            sides = (models[name].is_correct("clean") for name in (each.method, each.rival))
            assert each.p == mcnemar(*sides)
    for name, model in answers(models).items():
        for metric, (low, high) in score_intervals(model, LABELS, labels_biased, seed=0).items():
            assert low <= scores[name][metric].value <= high


def test_pulls_are_compared_image_by_image() -> None:
    """The difference is that of the two probability changes; a model without probabilities has none."""
    models = {name: evidence(skill=skill) for name, skill in (("a", 1.0), ("b", 2.0))}

    def share(logits: np.ndarray) -> np.ndarray:
        return np.exp(logits[:, 0] - np.logaddexp.reduce(logits, axis=1))

    pulls = {name: share(each.logits_biased) - share(each.logits_clean) for name, each in models.items()}
    (found,) = compare_probability_changes({**pulls, "broken": np.full(len(LABELS), np.nan)})
    changes = {name: compute("probability_change", each) for name, each in models.items()}
    assert (found.method, found.rival, found.metric, found.p) == ("b", "a", "probability_change", None)
    assert found.value == pytest.approx(changes["b"].value - changes["a"].value)
    assert found.stderr == pytest.approx((pulls["b"] - pulls["a"]).std(ddof=1) / np.sqrt(len(LABELS)))
    assert found.high - found.value == pytest.approx(1.96 * found.stderr, rel=1e-3)
    assert compare_probability_changes({name: pull[:24] for name, pull in pulls.items()}) == [], "too few"


def test_what_too_few_images_leave_unknown_is_not_compared() -> None:
    few = np.zeros(7, dtype=np.int64)
    models = answers({"a": evidence(few), "b": evidence(few)})
    known = {"accuracy_clean", "balanced_accuracy_clean"}
    assert {each.metric for each in compare_answers(models, LABELS, few, biased_class=0, seed=0)} == known
    assert set(score_intervals(models["a"], LABELS, few, seed=0)) == known
    tiny = {"a": {"clean": LABELS[:10], "biased": LABELS[:10]}}
    assert score_intervals(tiny["a"], LABELS[:10], None, seed=0) == {}


def test_classes_are_compared_with_one_model() -> None:
    """The difference is that of the two sensitivities; a class of fewer than 25 images has none."""
    models = {name: evidence(skill=skill) for name, skill in (("a", 3.0), ("b", 1.0), ("c", 2.0))}
    found = compare_classes(answers(models), LABELS, rival="a")
    assert [(each.method, each.rival, each.group) for each in found] == [
        (method, "a", label) for label in range(3) for method in "bc"
    ]
    sensitivity = Metric.named("sensitivity_clean")()
    scores = {
        name: {score.group: score.value for score in sensitivity.compute_all(each)} for name, each in models.items()
    }
    for each in found:
        assert each.metric == "sensitivity_clean"
        assert each.value == pytest.approx(scores[each.method][each.group] - scores["a"][each.group])
        assert each.low <= each.value <= each.high
        assert each.reversed.group == each.group
    rare = np.repeat([0, 1, 2], (60, 46, 24))
    assert {each.group for each in compare_classes(answers(models), rare, rival="a")} == {0, 1}


def test_lost_classes() -> None:
    before = np.array([0, 1, 2, 2, NO_PREDICTION])
    assert lost_classes(before, np.array([0, 0, 0, 3, 0])) == (1, 2)
    assert lost_classes(before, before) == ()
    assert lost_classes(before, np.full(5, NO_PREDICTION)) == (0, 1, 2)
    assert lost_classes(np.array([0, 0]), np.array([1, 1])) == (0,)
