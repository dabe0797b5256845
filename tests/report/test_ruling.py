"""The rule of the verdict as a table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from hansfree.report.ruling import Ruling, Seen, describe_rule, rule_on

GOOD: dict[str, Any] = {"flips": (0.57, 0.15), "flips_change": (-0.46, -0.38), "biased_change": (0.10, 0.16)}
LITTLE: dict[str, Any] = GOOD | {"flips": (0.57, 0.40), "flips_change": (-0.20, -0.14)}
NATURAL: dict[str, Any] = {"biased_change": (0.10, 0.16)}


@pytest.mark.parametrize(
    ("seen", "ruling"),
    [
        (GOOD, "corrected"),
        (GOOD | {"is_usable": False}, "do not use"),
        (GOOD | {"flips_low": 0.12, "flips_clean_trained": 0.05}, "corrected"),
        (GOOD | {"flips_low": 0.12, "flips_clean_trained": 0.13}, "gone"),
        (GOOD | {"flips_low": 0.12}, "corrected"),  # nothing to reach
        (GOOD | {"flips": (0.57, 0.285)}, "corrected"),
        (GOOD | {"flips": (0.57, 0.29)}, "partly corrected"),
        (LITTLE, "partly corrected"),
        (LITTLE | {"flips_low": 0.37, "flips_clean_trained": 0.38}, "gone"),  # nobody could do better
        (LITTLE | {"flips_low": 0.37, "flips_clean_trained": 0.38, "is_usable": False}, "do not use"),
        (GOOD | {"biased_change": (-0.01, 0.05)}, "partly corrected"),
        (GOOD | {"biased_change": (-0.05, -0.01)}, "not corrected"),  # answers that stay the same, and wrong
        (GOOD | {"flips_change": (-0.02, 0.01)}, "partly corrected"),
        (GOOD | {"flips_change": (0.01, 0.03)}, "not corrected"),
        (GOOD | {"flips_change": (-0.02, 0.01), "biased_change": (-0.01, 0.05)}, "not corrected"),
        (GOOD | {"flips_change": (0.0, 0.0), "biased_change": (0.0, 0.0)}, "not corrected"),
        # in the scenes: how much is left, nobody can measure
        (NATURAL, "partly corrected"),
        (NATURAL | {"biased_change": (-0.01, 0.16)}, "not corrected"),
        (NATURAL | {"biased_change": (-0.16, -0.01)}, "not corrected"),
        ({}, "cannot be known"),
        ({"is_usable": False}, "do not use"),
    ],
)
def test_the_rule(seen: dict[str, Any], ruling: Ruling) -> None:
    assert rule_on(Seen(**seen)) == ruling


def test_the_words_are_of_what_can_be_applied() -> None:
    rule = describe_rule(Seen(**GOOD), budget=0.02)
    assert "at most half as many decisions" in rule
    assert "loses at most 2 points" in rule
    assert "Gone" not in rule
    assert "“Gone” takes a flip rate" in describe_rule(Seen(**GOOD, flips_clean_trained=0.1), budget=0.02)
    natural = describe_rule(Seen(**NATURAL), budget=0.005)
    assert "decisions" not in natural
    assert "loses at most 0.5 points" in natural
    assert "nothing is called corrected" in describe_rule(Seen(), budget=0.02)
