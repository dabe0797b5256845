"""What the data allow to claim, and how the report says it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from hansfree.evaluation.verdict import BIASED_ACCURACY, WORST_GROUP, claims
from hansfree.report import describe_claims
from tests.corrections.examples import held_out

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
