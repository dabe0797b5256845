"""What a user may choose is checked before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from hansfree.errors import HansfreeError
from hansfree.pipeline.workspace import Plan


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "dmo"}, "Did you mean 'demo'"),
        ({"trained": "heads"}, "trained is 'heads'. Did you mean 'head'"),
        ({"corrected": "lst"}, "corrected is 'lst'. Did you mean 'last'"),
        ({"grid": "papers"}, "Did you mean 'paper'"),
        ({"trained": "head"}, "give --weights"),
        ({"weights": "pretraned"}, "no file of weights 'pretraned'. Did you mean 'pretrained'"),
        ({"left_out": ("rrrr",)}, "Did you mean 'rrr'"),
        ({"strengths": {"rr-clrc": (1.0,)}}, "Did you mean 'rr-clarc'"),
        ({"strengths": {"vanilla": (1.0,)}}, "vanilla has no strength"),
        ({"strengths": {"rrr": (1.0, -1.0)}}, "at least 0"),
        ({"strengths": {"rrr": (float("nan"),)}}, "at least 0"),
        ({"strengths": {"rrr": ()}}, "at least 0"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HansfreeError, match=sentence.replace("(", r"\(")):
        Plan(**{"model": "demo", **options})


def test_a_plan_that_can_be_done_is_taken() -> None:
    plan = Plan(
        model="resnet18", weights="pretrained", trained="head", strengths={"rrr": (0.0, 1e7)}, left_out=("rrr",)
    )
    assert plan.epochs is None
