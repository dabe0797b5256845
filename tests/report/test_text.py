# ruff: noqa: E501
"""Templates: every code has one, and they say what the numbers mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hansfree.evaluation.results import Results
from hansfree.reasons import Improvement, Reason, ReasonCode, VerdictInputs, VerdictLevel
from hansfree.report.text import LEVEL_TITLES, describe_reason, describe_rule

RESULTS = Results(rows=(), meta={"class_names": ["naevus", "melanoma"]}, selection={}, heatmaps=None)
CLEAR = Improvement(flips=(-0.46, -0.38), flips_p=0.001, accuracy=(0.10, 0.16))
GOOD = VerdictInputs(flips=(0.57, 0.15), over_original=CLEAR)

REASONS: list[tuple[ReasonCode, dict[str, Any], str]] = [
    (ReasonCode.NOT_FINITE, {}, "its numbers are not finite"),
    (
        ReasonCode.NO_MODEL,
        {"reason": "no strength is admissible: never answers class 1."},
        "no strength is admissible: never answers melanoma",
    ),
    (ReasonCode.NO_RESULT, {}, "it has no usable result"),
    (
        ReasonCode.CHANCE_LEVEL,
        {"accuracy": 0.333},
        "its balanced accuracy on images without the artifact is at chance level (33.3 %)",
    ),
    (
        ReasonCode.LOST_CLASS,
        {"classes": [0, 1]},
        "it never predicts “naevus” and “melanoma”, which the original model does",
    ),
    (
        ReasonCode.REJECTED_ON_VALIDATION,
        {"reason": "never answers class 1"},
        "on validation images it never answers melanoma",
    ),
    (ReasonCode.RULE_BROKEN, {}, "it breaks the selection rule"),
    (
        ReasonCode.CLEAN_BUDGET,
        {"drop": 0.051, "stderr": 0.01, "budget": 0.02},
        "it loses 5.1 ± 1.0 points of balanced accuracy on test images without the artifact, and 2 are allowed",
    ),
    (
        ReasonCode.CLASS_BUDGET,
        {"label": 1, "drop": 0.051, "stderr": 0.01, "budget": 0.02},
        "it loses 5.1 ± 1.0 points of its sensitivity to “melanoma” on test images without the artifact, and 2 are allowed",
    ),
    (
        ReasonCode.STRONGER_EFFECT,
        {"before": 0.026, "after": 0.066},
        "The artifact moves predictions further towards its class than before: that class's probability changes by +6.6 points instead of +2.6",
    ),
    (
        ReasonCode.STRONGER_EFFECT,
        {"before": 0.02, "after": -0.3},
        "The artifact moves predictions further away from its class than before: that class's probability changes by \N{MINUS SIGN}30.0 points instead of +2.0",
    ),
    (
        ReasonCode.MORE_FALSE_ALARMS,
        {"before": 0.12, "after": 0.155},
        "The artifact causes more false alarms of its class than before: with it, 15.5 % of the images of other classes are predicted as that class instead of 12.0 %",
    ),
    (
        ReasonCode.MORE_FALSE_ALARMS,
        {"before": None, "after": None},
        "The artifact causes more false alarms of its class than before",
    ),
    (ReasonCode.FINE_TUNING_SUFFICES, {}, "Plain fine-tuning (Vanilla) alone achieves all or part of the improvement"),
]


def test_every_code_has_a_template() -> None:
    assert {code for code, _, _ in REASONS} == set(ReasonCode)
    assert LEVEL_TITLES.keys() == set(VerdictLevel)


@pytest.mark.parametrize(("code", "values", "words"), REASONS)
def test_reasons(code: ReasonCode, values: dict[str, Any], words: str) -> None:
    assert describe_reason(RESULTS, Reason(code, values)).replace("\N{NO-BREAK SPACE}", " ") == words


def test_the_words_are_of_what_can_be_applied() -> None:
    rule = describe_rule(GOOD, budget=0.02)
    assert "at most half as many decisions" in rule
    assert "McNemar test must agree: p below 0.05)" in rule
    assert "loses at most 2 points" in rule
    assert "clean-trained" not in rule
    assert "Vanilla" not in rule
    assert "than the original model and than plain fine-tuning (Vanilla)" in describe_rule(
        replace(GOOD, over_vanilla=CLEAR), budget=0.02
    )
    known = describe_rule(replace(GOOD, flips_beyond_reference=(0.0, 0.1)), budget=0.02)
    assert "at most 5 points more flips than a model trained on clean data, at the upper end" in known
    guarded = describe_rule(GOOD, budget=0.02, class_budgets={"melanoma": 0.1})
    assert "loses at most 2 points, the sensitivity to “melanoma” at most 10 (beyond" in guarded
    natural = describe_rule(VerdictInputs(over_original=Improvement(accuracy=(0.10, 0.16))), budget=0.005)
    assert "decisions" not in natural
    assert "loses at most 0.5 points" in natural
    assert "no model is called corrected" in describe_rule(VerdictInputs(), budget=0.02)
