"""The one model that a run recommends, selected on validation images among latent and deep methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import pytest

from hansfree.corrections.selection import Validation
from hansfree.evaluation import judge_methods
from hansfree.evaluation.results import Results, Row, validated_rows
from hansfree.metrics import Difference, Score
from hansfree.pipeline.recommendation import recommend
from hansfree.reasons import Advice, AdviceCode, Reason, ReasonCode
from hansfree.report.advice import describe_advice

Scores: TypeAlias = Mapping[str, float | None]


def results_of(val: Scores, rule: str, test: dict[str, float], gain: float | None) -> Results:
    """Return made-up results: a score per method on validation images (None: not admissible) and on test images.

    Args:
        gain: in balanced accuracy on test images with the artifact, with an error of 0.01; None: it cannot be known.
    """
    rows = [
        Row(experiment="x", method="original", split="test", chosen=1, metric=metric, value=value)
        for metric, value in (("balanced_accuracy_clean", 0.9), ("accuracy_biased", 0.7))
    ]
    selection, paired, reason = {}, [], asdict(Reason(ReasonCode.DIVERGED))
    for method, value in val.items():
        common: dict[str, Any] = {"experiment": "x", "method": method}
        seen = [(1, 1, 0.99), (2, 1, value or 0.0), (2, 0, 1.0)]  # only the end of the chosen one counts
        rows += [
            Row(split="val", epoch=epoch, chosen=chosen, metric="balanced_accuracy_biased", value=each, **common)
            for epoch, chosen, each in seen
        ]
        scores = [("balanced_accuracy_clean", test.get(method, 0.9), 0.01, 60), ("accuracy_biased", 0.575, None, 60)]
        rows += [
            Row(split="test", chosen=1, metric=metric, value=each, stderr=stderr, n=n, **common)
            for metric, each, stderr, n in scores
        ]
        selection[method] = {"admissible": value is not None, "reason": reason, "rejection": None}
        if rule == "derivative":
            selection[method]["derivative"] = {"chosen": value}
        if gain is not None:
            interval = gain - 0.02, gain + 0.02
            paired.append(Difference(method, "original", "balanced_accuracy_biased", gain, 0.01, *interval))
    meta = {"biased_class": 0, "chance_level": 0.5, "budget": 0.02, "seed": 0}
    results = Results(
        rows=tuple(row for row in rows if row.split == "test"),
        meta=meta,
        selection=selection,
        heatmaps=None,
        paired=tuple(paired),
        validated=validated_rows(rows),
    )
    return replace(results, verdicts=judge_methods(results))


def advise(
    val: Scores,
    rule: str = "accuracy",
    *,
    test: dict[str, float] | None = None,
    gain: float | None = 0.1,
    is_inserted: bool = False,
) -> tuple[Advice, tuple[str, ...]]:
    results, before = results_of(val, rule, test or {}, gain), Score("balanced_accuracy_biased", 0.5, None, 50)
    original = Validation(before, before, is_finite=True, lost=(), derivative=0.5)
    advice = recommend(results, original, is_derivative=rule == "derivative", is_inserted=is_inserted)
    return advice, describe_advice(results, advice)


@pytest.mark.parametrize(
    ("val", "rule", "best"),
    [
        ({"p-clarc": 0.8, "rr-clarc": 0.7}, "accuracy", "p-clarc"),
        ({"p-clarc": 0.7, "rr-clarc": 0.8}, "accuracy", "rr-clarc"),
        ({"p-clarc": 0.8, "rr-clarc": 0.8}, "accuracy", "rr-clarc"),  # of equals the method of the paper
        ({"p-clarc": 0.7, "rr-clarc": None}, "accuracy", "p-clarc"),
        ({"a-clarc": 0.3, "rr-clarc": 0.1}, "derivative", "rr-clarc"),  # the smaller, the better
        ({"vanilla": 1.0, "rr-clarc": 0.6}, "accuracy", "rr-clarc"),  # fine-tuning corrects nothing
        ({"match": 0.8, "rr-clarc": 0.7}, "accuracy", "match"),
    ],
)
def test_the_best_on_validation_images_is_recommended(val: Scores, rule: str, best: str) -> None:
    advice, sentences = advise(val, rule)
    assert (advice.code, advice.method) == (AdviceCode.RECOMMENDED, best)
    assert len(sentences) == 1
    assert sentences[0].startswith(f"Recommended: {best}, by the ")


@pytest.mark.parametrize(
    ("val", "flips", "best"),
    [
        ({"p-clarc": 0.80, "rr-clarc": 0.77}, {"p-clarc": 0.3, "rr-clarc": 0.1}, "rr-clarc"),
        ({"p-clarc": 0.80, "rr-clarc": 0.77}, {"p-clarc": 0.1, "rr-clarc": 0.3}, "p-clarc"),
        ({"p-clarc": 0.80, "rr-clarc": 0.74}, {"p-clarc": 0.3, "rr-clarc": 0.1}, "p-clarc"),  # no tie
        ({"p-clarc": 0.80, "rr-clarc": 0.77}, {"p-clarc": 0.3}, "p-clarc"),  # one of them is not known
        ({"p-clarc": 0.52, "rr-clarc": 0.49}, {"p-clarc": 0.3, "rr-clarc": 0.1}, "p-clarc"),  # no gain: 0.5 before
    ],
)
def test_within_one_standard_error_the_fewest_flips_decide(val: Scores, flips: Scores, best: str) -> None:
    results, before = results_of(val, "accuracy", {}, 0.1), Score("balanced_accuracy_biased", 0.5, None, 50)
    seen = [replace(row, stderr=0.04) for row in results.validated]
    last = [row for row in seen if row.epoch == 2]
    seen += [
        replace(row, metric="flip_rate", value=share) for row in last if (share := flips.get(row.method)) is not None
    ]
    found = replace(results, validated=tuple(seen))
    advice = recommend(
        found, Validation(before, before, is_finite=True, lost=()), is_derivative=False, is_inserted=True
    )
    (sentence,) = describe_advice(found, advice)
    assert advice.method == best
    assert ("within one standard error" in sentence) == bool(advice.flips)


@pytest.mark.parametrize(
    ("facts", "code", "sentence"),
    [
        ({"val": {"vanilla": 0.9}}, AdviceCode.ONLY_FINE_TUNING, "Only plain fine-tuning was run"),
        ({"val": {"rr-clarc": None}}, AdviceCode.NONE_ADMISSIBLE, "none is admissible (rr-clarc: diverged)."),
        ({"val": {"p-clarc": 0.0}, "rule": "derivative"}, AdviceCode.NONE_COMPARABLE, "none can be chosen by the"),
        ({"val": {"rr-clarc": 0.5}}, AdviceCode.NO_GAIN_ON_VALIDATION, "than the original model (50.0 %)."),
        ({"val": {"rr-clarc": 0.5}, "rule": "derivative"}, AdviceCode.NO_GAIN_ON_VALIDATION, "original model (0.5)."),
        ({"val": {"rr-clarc": 0.8}, "gain": 0.01}, AdviceCode.NO_GAIN_ON_TEST, "not clearly better than the original"),
        ({"val": {"rr-clarc": 0.8}, "gain": -0.1}, AdviceCode.NO_GAIN_ON_TEST, "hansfree export RUN METHOD."),
        ({"val": {"rr-clarc": 0.8}, "test": {"rr-clarc": 0.5}}, AdviceCode.REJECTED_ON_TEST, "its balanced accuracy"),
    ],
)
def test_no_model_is_recommended(facts: dict[str, Any], code: AdviceCode, sentence: str) -> None:
    advice, sentences = advise(**facts)
    assert (advice.code, advice.method) == (code, None)
    assert sentence in " ".join(sentences)


@pytest.mark.parametrize(("is_inserted", "way"), [(False, "put the artifact into images"), (True, "hold out more")])
def test_without_evidence_the_best_is_a_guess(is_inserted: bool, way: str) -> None:
    advice, sentences = advise({"rr-clarc": 0.8}, gain=None, is_inserted=is_inserted)
    assert (advice.code, advice.method) == (AdviceCode.BEST_GUESS, "rr-clarc")
    assert sentences[-1].startswith(f"Before you use rr-clarc, {way}")


def test_the_derivative_does_not_compare_models_without_the_direction_and_deep_ones() -> None:
    """Without the direction nothing is left along it by construction; deep methods have other activations."""
    advice, sentences = advise({"p-clarc": 0.0, "rr-clarc": 0.1}, "derivative")
    assert (advice.method, advice.not_compared) == ("rr-clarc", ("p-clarc",))
    assert "p-clarc" not in sentences[0]
    assert sentences[1].startswith("Not compared by that: p-clarc (without the direction")


def test_test_images_do_not_select() -> None:
    advice, sentences = advise({"p-clarc": 0.7, "rr-clarc": 0.8}, test={"p-clarc": 0.99})
    assert advice.method == "rr-clarc"
    assert sentences[0].endswith("(80.0 %; p-clarc 70.0 %).")
