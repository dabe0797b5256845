"""What the data allow to claim, in words with numbers."""

from __future__ import annotations

import pytest

from hansfree.data.biased import BiasedData
from hansfree.evaluation.data_checks import Claim, claims
from tests.corrections.examples import held_out


def found(data: BiasedData) -> dict[str, Claim]:
    return {claim.name: claim for claim in claims(data)}


def test_with_the_artifact_put_in_everything_can_be_claimed() -> None:
    data = held_out(inserted=True)
    assert all(claim.can_be_made for claim in claims(data))
    assert "All 80 test images" in found(data)["accuracy with the artifact"].sentence


def test_in_the_scenes_no_flip_can_be_known() -> None:
    cannot = [claim.name for claim in claims(held_out()) if not claim.can_be_made]
    assert cannot == ["flip rate"]


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({0: 40, 1: 7}, "Only 47 test images have the artifact: 40 of class 'red', 7 of class 'green'."),
        ({0: 40}, "Only 40 test images have the artifact: 40 of class 'red', 0 of class 'green'."),
        ({0: 1}, "Only 1 test image has the artifact: 1 of class 'red', 0 of class 'green'."),
        ({}, "No test image has the artifact."),
    ],
)
def test_too_few_counter_examples_are_counted(counts: dict[int, int], sentence: str) -> None:
    claim = found(held_out(test_biased=counts))["accuracy with the artifact"]
    assert not claim.can_be_made
    assert claim.sentence.startswith(sentence)
    assert "not available" in claim.sentence


def test_the_worst_group_may_be_one_that_nobody_sees() -> None:
    claim = found(held_out(test_clean={0: 40, 1: 24}, test_biased={0: 40, 1: 3}))["worst group"]
    assert not claim.can_be_made
    assert "'green' without the artifact (24), 'green' with the artifact (3)" in claim.sentence
    assert found(held_out(test_biased={0: 25, 1: 25}))["worst group"].can_be_made


def test_it_is_said_when_the_strength_is_not_chosen_by_accuracy() -> None:
    name = "strength chosen by accuracy"
    assert found(held_out(val_biased={0: 25, 1: 25}))[name].can_be_made
    claim = found(held_out(val_biased={0: 60}))[name]
    assert not claim.can_be_made
    assert claim.sentence.startswith("Only 60 validation images have the artifact")
    assert "derivative" in claim.sentence


def test_the_derivative_is_always_known_and_says_on_what() -> None:
    name = "derivative along the CAV (TCAV)"
    assert "the 80 test images with the artifact" in found(held_out())[name].sentence
    few = found(held_out(test_biased={0: 7}))[name]
    assert few.can_be_made
    assert "all 87 test images, as only 7 have the artifact" in few.sentence
    assert "second evidence" in few.sentence
