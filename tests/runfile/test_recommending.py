"""The one model that a run recommends: by validation images alone, and none where none may be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from hansfree.metrics import Score
from hansfree.results import Row
from hansfree.runfile.recommending import recommend
from hansfree.selection import BalancedRule, DerivativeRule, Validation

RULES = {"accuracy": BalancedRule(), "derivative": DerivativeRule()}


@dataclass
class Finished:
    """What `recommend` asks an experiment, made up: a score per method, on validation images and on test images."""

    val: dict[str, float | None]  # None: not admissible
    before: float = 0.5
    rule: str = "accuracy"
    test: dict[str, float] = field(default_factory=dict)

    @property
    def setting(self) -> Any:
        data = SimpleNamespace(train=SimpleNamespace(class_names=("a", "b")))
        return SimpleNamespace(rule=RULES[self.rule], data=data)

    @property
    def material(self) -> Any:
        score = Score("balanced_accuracy_biased", self.before, None, 50)
        seen = Validation(score, score, True, (), self.before)
        return SimpleNamespace(original_validation=seen)

    def plain(self, method: str) -> str:
        return method

    def selection(self, method: str) -> dict[str, Any]:
        value = self.val[method]
        return {"admissible": value is not None, "reason": "diverged", "derivative": {"chosen": value}}

    def variant_rows(self, method: str) -> list[Row]:
        common: dict[str, Any] = {"experiment": "x", "method": method}
        value = self.val[method] or 0.0
        seen = [(1, 1, 0.99), (2, 1, value), (2, 0, 1.0)]  # epoch, chosen, value: only the end of the chosen one counts
        rows = [
            Row(split="val", epoch=epoch, chosen=chosen, metric="balanced_accuracy_biased", value=each, **common)
            for epoch, chosen, each in seen
        ]
        score = {"metric": "balanced_accuracy_clean", "value": self.test.get(method, 0.9), "stderr": 0.01}
        return [*rows, Row(split="test", chosen=1, **score, **common)]

    def rows(self, methods: list[str]) -> list[Row]:
        original = Row(
            experiment="x", method="original", split="test", chosen=1, metric="balanced_accuracy_clean", value=0.9
        )
        return [original, *(row for method in methods for row in self.variant_rows(method))]

    def paired(self, *, methods: list[str]) -> dict[str, Any]:
        return {}


def advice(methods: list[str], **facts: Any) -> Any:
    return recommend(Finished(**facts), methods)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("val", "rule", "best"),
    [
        ({"p-clarc": 0.8, "rr-clarc": 0.7}, "accuracy", "p-clarc"),
        ({"p-clarc": 0.7, "rr-clarc": 0.8}, "accuracy", "rr-clarc"),
        ({"p-clarc": 0.8, "rr-clarc": 0.8}, "accuracy", "rr-clarc"),  # of equals the method of the paper
        ({"p-clarc": 0.7, "rr-clarc": None}, "accuracy", "p-clarc"),
        ({"p-clarc": 0.3, "rr-clarc": 0.1}, "derivative", "rr-clarc"),  # the smaller, the better
        ({"vanilla": 1.0, "rr-clarc": 0.6}, "accuracy", "rr-clarc"),  # fine-tuning corrects nothing
    ],
)
def test_the_best_on_validation_images(val: dict[str, float | None], rule: str, best: str) -> None:
    found = advice(list(val), val=val, rule=rule)
    assert found.method == best
    assert found.sentences[0].startswith(f"Recommended: {best}, by the ")
    assert len(found.sentences) == 1


def test_the_others_stand_beside_it() -> None:
    found = advice(["p-clarc", "rr-clarc"], val={"p-clarc": 0.75, "rr-clarc": 0.8})
    assert found.sentences[0].endswith("(80.0 %; p-clarc 75.0 %).")


@pytest.mark.parametrize(("rule", "told"), [("accuracy", "50.0 %"), ("derivative", "0.5")])
def test_one_that_is_no_better_than_the_original_is_doubted(rule: str, told: str) -> None:
    found = advice(["rr-clarc"], val={"rr-clarc": 0.5}, rule=rule)
    assert found.method == "rr-clarc"
    assert found.sentences[1] == f"By that it is no better than the model as it came ({told})."


def test_test_images_may_refuse_and_not_choose() -> None:
    val = {"p-clarc": 0.7, "rr-clarc": 0.8}
    assert advice(list(val), val=val, test={"p-clarc": 0.99}).method == "rr-clarc"
    found = advice(list(val), val=val, test={"rr-clarc": 0.5})
    assert found.method is None
    assert found.sentences[0].startswith(
        "Do not use rr-clarc, though it is the best on validation images: it answers at"
    )


def test_none_that_is_admissible() -> None:
    found = advice(["vanilla", "p-clarc", "rr-clarc"], val={"vanilla": 0.9, "p-clarc": None, "rr-clarc": None})
    assert found.method is None
    assert found.sentences == (
        "Do not use any of the corrected models: none is admissible (p-clarc: diverged; rr-clarc: diverged).",
    )
