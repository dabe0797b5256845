"""The rule of the verdict as a table of cases; what more images, or fewer, may do to it; which claims data allow."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hansfree._internal.statistics import balanced_difference_interval, difference_interval, share_interval
from hansfree.evaluation.results import Results, Row
from hansfree.evaluation.verdict import (
    BIASED,
    BIASED_ACCURACY,
    FLIPS,
    WORST_GROUP,
    better_rivals,
    claims,
    competing_variants,
    decide,
    find_reasons,
    find_rejection,
    judge_methods,
    shown_variant,
    why_no_model,
)
from hansfree.metrics import Difference, mcnemar
from hansfree.reasons import Improvement, Reason, ReasonCode, Verdict, VerdictInputs, VerdictLevel
from hansfree.report import describe_claims
from tests.corrections.examples import held_out

AS_REFERENCE, CORRECTED, PARTLY_CORRECTED, NOT_CORRECTED, UNKNOWN, UNUSABLE = VerdictLevel
CLEAR = Improvement(flips=(-0.46, -0.38), flips_p=0.001, accuracy=(0.10, 0.16))
NO_GAIN = Improvement(flips=(-0.02, 0.01), flips_p=0.4, accuracy=(-0.01, 0.05))
GOOD = VerdictInputs(flips=(0.57, 0.15), over_original=CLEAR)
LITTLE = VerdictInputs(flips=(0.57, 0.40), over_original=replace(CLEAR, flips=(-0.20, -0.14)))
NATURAL = VerdictInputs(over_original=Improvement(accuracy=(0.10, 0.16)))
RANKS: tuple[VerdictLevel, ...] = (
    NOT_CORRECTED,
    PARTLY_CORRECTED,
    CORRECTED,
    AS_REFERENCE,
)


def over_original(**changed: object) -> VerdictInputs:
    return replace(GOOD, over_original=replace(CLEAR, **changed))


def over_vanilla(seen: VerdictInputs = GOOD, **changed: object) -> VerdictInputs:
    return replace(seen, over_vanilla=replace(CLEAR, **changed))


@pytest.mark.parametrize(
    ("inputs", "level"),
    [
        (GOOD, CORRECTED),
        (replace(GOOD, insertion_differs=True), UNKNOWN),  # of another artifact than the labelled one
        (replace(GOOD, is_usable=False), UNUSABLE),
        (replace(GOOD, flips_beyond_reference=(-0.02, 0.05)), AS_REFERENCE),
        # more may be left than the margin
        (replace(GOOD, flips_beyond_reference=(-0.02, 0.051)), CORRECTED),
        (replace(GOOD, flips_beyond_reference=(-0.02, 0.101)), PARTLY_CORRECTED),
        (replace(GOOD, flips_beyond_reference=(-0.30, 0.30)), PARTLY_CORRECTED),  # so few images show nothing
        (replace(GOOD, flips_beyond_reference=(0.01, 0.03)), AS_REFERENCE),  # worse, and by little
        (replace(GOOD, flips=(0.57, 0.151)), PARTLY_CORRECTED),
        (replace(GOOD, flips=(0.57, 0.12), most_flips=0.151), PARTLY_CORRECTED),
        (replace(GOOD, flips=(0.24, 0.12), most_flips=0.15), CORRECTED),
        (replace(GOOD, flips=(0.23, 0.12), most_flips=0.15), PARTLY_CORRECTED),  # more than half is left
        (replace(GOOD, flips=(0.57, 0.28), flips_beyond_reference=(-0.02, 0.05)), AS_REFERENCE),  # which flips as many
        (LITTLE, PARTLY_CORRECTED),
        # both flip far too often
        (replace(LITTLE, flips_beyond_reference=(-0.02, 0.01)), PARTLY_CORRECTED),
        (replace(LITTLE, flips_beyond_reference=(-0.02, 0.01), is_usable=False), UNUSABLE),
        (over_original(accuracy=(-0.01, 0.05)), PARTLY_CORRECTED),
        (over_original(accuracy=(-0.05, -0.01)), NOT_CORRECTED),  # answers that stay the same, and wrong
        (over_original(flips=(-0.02, 0.01)), PARTLY_CORRECTED),
        (over_original(flips=(0.01, 0.03)), NOT_CORRECTED),
        (over_original(flips_p=0.051), PARTLY_CORRECTED),  # the interval alone is not enough
        (over_original(flips_p=0.125, accuracy=(-0.01, 0.05)), NOT_CORRECTED),
        (replace(GOOD, over_original=NO_GAIN), NOT_CORRECTED),
        (over_original(flips=(0.0, 0.0), accuracy=(0.0, 0.0)), NOT_CORRECTED),
        # plain fine-tuning has to be beaten too
        (over_vanilla(), CORRECTED),
        (over_vanilla(accuracy=(-0.01, 0.05)), PARTLY_CORRECTED),
        (over_vanilla(flips_p=0.3), PARTLY_CORRECTED),
        (replace(GOOD, over_vanilla=NO_GAIN), NOT_CORRECTED),
        (over_vanilla(accuracy=(-0.05, -0.01)), NOT_CORRECTED),
        (over_vanilla(NATURAL, flips=None, flips_p=None), PARTLY_CORRECTED),
        (replace(NATURAL, over_vanilla=Improvement(accuracy=(-0.01, 0.05))), NOT_CORRECTED),
        (replace(GOOD, over_vanilla=Improvement()), CORRECTED),  # it was run, and cannot be compared
        # the artifact must not pull harder
        (replace(GOOD, effect=(0.35, 0.05), effect_change=(-0.32, -0.28)), CORRECTED),
        (replace(LITTLE, effect=(0.026, 0.066), effect_change=(0.03, 0.05)), NOT_CORRECTED),
        (replace(GOOD, effect=(0.026, 0.066), effect_change=(0.03, 0.05)), NOT_CORRECTED),
        # more, and not clearly
        (replace(GOOD, effect=(0.026, 0.031), effect_change=(-0.01, 0.02)), CORRECTED),
        # now it pushes away
        (replace(GOOD, effect=(0.02, -0.30), effect_change=(-0.34, -0.30)), NOT_CORRECTED),
        # less, from the other side
        (replace(GOOD, effect=(-0.10, -0.02), effect_change=(0.06, 0.10)), CORRECTED),
        (replace(GOOD, specificity_change=(-0.06, -0.01)), NOT_CORRECTED),
        (replace(NATURAL, specificity_change=(-0.06, -0.01)), NOT_CORRECTED),
        (replace(GOOD, specificity_change=(-0.06, 0.01)), CORRECTED),
        # natural artifact: how much is left cannot be measured
        (NATURAL, PARTLY_CORRECTED),
        (replace(NATURAL, over_original=Improvement(accuracy=(-0.01, 0.16))), NOT_CORRECTED),
        (replace(NATURAL, over_original=Improvement(accuracy=(-0.16, -0.01))), NOT_CORRECTED),
        (VerdictInputs(), UNKNOWN),
        (VerdictInputs(is_usable=False), UNUSABLE),
    ],
)
def test_the_rule(inputs: VerdictInputs, level: VerdictLevel) -> None:
    assert decide(inputs) == level


@pytest.mark.parametrize(
    ("inputs", "codes"),
    [
        (GOOD, []),
        (LITTLE, []),
        (over_vanilla(), []),
        (VerdictInputs(is_usable=False), []),
        (replace(GOOD, over_vanilla=NO_GAIN), [ReasonCode.FINE_TUNING_SUFFICES]),
        (replace(GOOD, over_original=NO_GAIN, over_vanilla=NO_GAIN), []),
        (replace(GOOD, effect=(0.026, 0.066), effect_change=(0.03, 0.05)), [ReasonCode.STRONGER_EFFECT]),
        (replace(GOOD, effect=(0.02, -0.3), effect_change=(-0.34, -0.3)), [ReasonCode.STRONGER_EFFECT]),
        (replace(GOOD, specificity_change=(-0.06, -0.01)), [ReasonCode.MORE_FALSE_ALARMS]),
    ],
)
def test_reasons(inputs: VerdictInputs, codes: list[ReasonCode]) -> None:
    assert [reason.code for reason in find_reasons(inputs)] == codes


def test_a_clear_change_of_probability_goes_before_false_alarms() -> None:
    both = replace(GOOD, specificity_change=(-0.06, -0.01), false_alarms=(0.12, 0.155))
    assert find_reasons(both) == (Reason(ReasonCode.MORE_FALSE_ALARMS, {"before": 0.12, "after": 0.155}),)
    stronger = replace(both, effect=(0.026, 0.066), effect_change=(0.03, 0.05))
    assert find_reasons(stronger) == (Reason(ReasonCode.STRONGER_EFFECT, {"before": 0.026, "after": 0.066}),)


def test_a_verdict_survives_json() -> None:
    inputs = replace(over_vanilla(), effect=(0.026, 0.066), effect_change=(0.03, 0.05))
    verdict = Verdict(decide(inputs), find_reasons(inputs), inputs)
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def gain(flips: np.ndarray, right: np.ndarray, before: int) -> Improvement:
    """Return what the last model wins over another, given per model and image whether it flips and is right."""
    return Improvement(
        flips=difference_interval(flips[-1], flips[before]),
        flips_p=mcnemar(flips[-1], flips[before]),
        accuracy=balanced_difference_interval(right[-1], right[before], np.arange(flips.shape[1]) % 2, seed=0),
    )


def see(flips: np.ndarray, right: np.ndarray) -> VerdictInputs:
    """Return what the rule sees.

    Args:
        flips: Per image, whether the artifact changes the answer: of a clean-trained model, before, fine-tuned, after.
        right: Per image, whether the answer with the artifact is right: of the same.
    """
    return VerdictInputs(
        flips=(flips[1].mean(), flips[-1].mean()),
        most_flips=share_interval(flips[-1])[1],
        over_original=gain(flips, right, 1),
        over_vanilla=gain(flips, right, 2),
        flips_beyond_reference=difference_interval(flips[-1], flips[0]),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(15, 60), st.integers(2, 9), st.sampled_from([0.05, 0.2, 0.5]), st.booleans()
)
def test_with_more_images_like_these_nothing_better_is_called_worse(
    seed: int, half: int, more: int, left: float, is_reached: bool
) -> None:
    """Then fewer images make no word easier to get; whether what is left is that of a clean-trained model, or more."""
    rng, n = np.random.default_rng(seed), 2 * half
    flips = rng.random((4, n)) < np.array([[left if is_reached else left / 2], [0.6], [0.55], [left]])
    right = rng.random((4, n)) < np.array([[0.9], [0.4], [0.45], [0.9 - left]])
    recalls = right.reshape(4, half, 2).mean(axis=1).mean(axis=1)
    # more images rightly show what became worse
    assume((flips[3].sum() <= flips[1:3].sum(axis=1)).all() and (recalls[3] >= recalls[1:3]).all())
    few, many = see(flips, right), see(np.tile(flips, more), np.tile(right, more))
    assert RANKS.index(decide(many)) >= RANKS.index(decide(few))


def scored(method: str, clean: float, biased: float, flips: float, sensitivity: float = 0.9) -> list[Row]:
    """Return the rows of a model on the test images; those of class 1 say whether it is ever predicted."""
    about: dict[str, Any] = {"experiment": "e", "method": method, "chosen": 1, "seed": 0, "stderr": 0.01, "n": 400}
    values = {BIASED: biased, FLIPS: flips, "balanced_accuracy_clean": clean}
    of_class = {"sensitivity_clean": sensitivity, "specificity_clean": 1 - sensitivity, "specificity_biased": 0.8}
    rows = [Row(metric=metric, value=value, **about) for metric, value in values.items()]
    return [*rows, *(Row(metric=metric, value=value, group=1, **about) for metric, value in of_class.items())]


def less(method: str, metric: str, value: float) -> Difference:
    return Difference(method, "original", metric, value, 0.01, value - 0.02, value + 0.02, p=0.001)


MODELS = {  # its scores, and why it must not be used
    "original": ((0.9, 0.5, 0.5), None),
    "clean-trained": ((0.9, 0.88, 0.05), None),
    "vanilla": ((float("nan"), 0.5, 0.5), ReasonCode.NOT_FINITE),
    "p-clarc": ((0.5, 0.5, 0.0), ReasonCode.CHANCE_LEVEL),
    "a-clarc": ((0.85, 0.8, 0.1, 0.0), ReasonCode.LOST_CLASS),
    "rrr": ((0.8, 0.7, 0.2), ReasonCode.CLEAN_BUDGET),
    "r-clarc": ((0.9, 0.7, 0.2, 0.6), ReasonCode.CLASS_BUDGET),
    "rr-clarc": ((0.9, 0.8, 0.1), None),
    "leace": ((0.9, 0.86, 0.08), None),
    "dfr": ((0.9, 0.8, 0.1), ReasonCode.REJECTED_ON_VALIDATION),
}


def test_every_model_is_judged_by_its_scores() -> None:
    rejected = {"admissible": False, "rejection": {"code": ReasonCode.DIVERGED.value, "values": {}}}
    none = {"reason": {"code": ReasonCode.NO_CANDIDATE.value, "values": {}}}
    better = [less(method, BIASED, 0.3) for method in ("rr-clarc", "leace")]
    fewer = [less(method, FLIPS, -0.4) for method in ("rr-clarc", "leace")]
    rival = [
        replace(less("leace", metric, 0.05 * sign), rival="rr-clarc") for metric, sign in ((BIASED, 1), (FLIPS, -1))
    ]
    results = Results(
        rows=tuple(row for method, (scores, _) in MODELS.items() for row in scored(method, *scores)),
        meta={"chance_level": 0.5, "class_budgets": {"1": 0.1}, "seed": 0, "biased_class": 1},
        selection={"dfr": rejected, "match": none},
        heatmaps=None,
        paired=(*better, *fewer, *rival),
    )
    variants = {variant.method: variant for variant in results.methods()}
    found = {method: find_rejection(results, variant) for method, variant in variants.items()}
    assert {method: None if each is None else each.code for method, each in found.items()} == {
        method: code for method, (_, code) in MODELS.items()
    }
    verdicts = judge_methods(results)
    assert {verdicts[method].level for method in ("vanilla", "rrr", "match")} == {UNUSABLE}
    assert verdicts["leace"].level == CORRECTED
    assert verdicts["leace"].inputs.false_alarms == pytest.approx((0.2, 0.2))
    shown = shown_variant(results)
    assert shown == variants["rr-clarc"]
    assert better_rivals(results, shown, competing_variants(results)) == [variants["leace"]]
    assert why_no_model(results, "match").code == ReasonCode.NO_MODEL


STRENGTH, DERIVATIVE = "strength chosen by accuracy", "derivative along the CAV (TCAV)"


@pytest.mark.parametrize(("inserted", "cannot"), [(True, []), (False, ["flip rate"])])
def test_only_flips_need_an_inserted_artifact(inserted: bool, cannot: list[str]) -> None:
    assert [claim.name for claim in claims(held_out(inserted=inserted)) if not claim.can_be_made] == cannot


@pytest.mark.parametrize(
    ("sets", "name", "can_be_made", "words"),
    [
        ({"inserted": True}, BIASED_ACCURACY, True, "All 80 test images"),
        (
            {"test_biased": {0: 40, 1: 7}},
            BIASED_ACCURACY,
            False,
            "Only 47 test images have the artifact: 40 of class 'red', 7 of class 'green'.",
        ),
        ({"test_biased": {0: 40}}, BIASED_ACCURACY, False, "40 of class 'red', 0 of class 'green'."),
        ({"test_biased": {0: 1}}, BIASED_ACCURACY, False, "Only 1 test image has the artifact: "),
        ({"test_biased": {}}, BIASED_ACCURACY, False, "No test image has the artifact."),
        (
            {"test_clean": {0: 40, 1: 24}, "test_biased": {0: 40, 1: 3}},
            WORST_GROUP,
            False,
            "'green' without the artifact (24), 'green' with the artifact (3)",
        ),
        ({"test_biased": {0: 25, 1: 25}}, WORST_GROUP, True, "Every class has"),
        ({"val_biased": {0: 25, 1: 25}}, STRENGTH, True, "by the accuracy"),
        ({"val_biased": {0: 60}}, STRENGTH, False, "Only 60 validation images have the artifact"),
        ({}, DERIVATIVE, True, "the 80 test images with the artifact"),
        ({"test_biased": {0: 7}}, DERIVATIVE, True, "all 87 test images, as only 7 have the artifact"),
    ],
)
def test_few_images_limit_a_claim(sets: dict[str, Any], name: str, can_be_made: bool, words: str) -> None:
    found = {claim["name"]: claim for claim in describe_claims([asdict(claim) for claim in claims(held_out(**sets))])}
    assert found[name]["can_be_made"] == can_be_made
    assert words in found[name]["sentence"]
