"""The one model that a run recommends: by validation images alone, and none where none may be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hansfree.api import recommend
from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    Validation,
)
from hansfree.data.biased import SETS
from hansfree.evaluation.results import Row
from hansfree.metrics import Difference, Score
from hansfree.pipeline.outcome import gather_results

RULES = {"accuracy": BalancedRule(), "derivative": DerivativeRule()}


@dataclass
class Labelled:
    """A set of images of which only the labels are known."""

    labels: np.ndarray
    class_names: tuple[str, ...] = ("a", "b")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def has_artifact(self) -> np.ndarray:
        return np.zeros(len(self), dtype=bool)


def small_data(biased_labels: tuple[int, ...], *, is_inserted: bool) -> Any:
    labels = dict.fromkeys(SETS, np.arange(60) % 2) | {"test_biased": np.array(biased_labels)}
    sets = {part: Labelled(each) for part, each in labels.items()}
    return SimpleNamespace(**sets, artifact="ruler", biased_class=0, is_inserted=is_inserted)


@dataclass
class FakeExperiment:
    """What `recommend` asks an experiment, made up: a score per method, on validation images and on test images."""

    val: dict[str, float | None]  # None: not admissible
    before: float = 0.5
    rule: str = "accuracy"
    test: dict[str, float] = field(default_factory=dict)
    biased_labels: tuple[int, ...] = (0,) * 30 + (1,) * 30  # of the test images with the artifact
    gain: float | None = 0.1  # in balanced accuracy on those, with an error of 0.01; None: it cannot be known
    is_inserted: bool = False

    @property
    def setting(self) -> Any:
        data = small_data(self.biased_labels, is_inserted=self.is_inserted)
        tuning = SimpleNamespace(seed=0)
        return SimpleNamespace(rule=RULES[self.rule], data=data, layer="conv", cav="signal", tuning=tuning)

    @property
    def workspace(self) -> Any:
        score = Score("balanced_accuracy_biased", self.before, None, 50)
        seen = Validation(score, score, True, (), self.before)
        return SimpleNamespace(original_validation=seen)

    def plain(self, method: str) -> str:
        return method

    def selection(self, method: str) -> dict[str, Any]:
        value = self.val[method]
        told = {"admissible": value is not None, "reason": "diverged", "objection": ""}
        return told | ({"derivative": {"chosen": value}} if self.rule == "derivative" else {})

    def rows_for(self, method: str) -> list[Row]:
        common: dict[str, Any] = {"experiment": "x", "method": method}
        value = self.val[method] or 0.0
        seen = [(1, 1, 0.99), (2, 1, value), (2, 0, 1.0)]  # epoch, chosen, value: only the end of the chosen one counts
        rows = [
            Row(split="val", epoch=epoch, chosen=chosen, metric="balanced_accuracy_biased", value=each, **common)
            for epoch, chosen, each in seen
        ]
        score = {"metric": "balanced_accuracy_clean", "value": self.test.get(method, 0.9), "stderr": 0.01}
        seen_biased = {"metric": "accuracy_biased", "value": 0.575, "n": len(self.biased_labels)}
        return [*rows, *(Row(split="test", chosen=1, **each, **common) for each in (score, seen_biased))]

    def rows(self, methods: list[str]) -> list[Row]:
        before = {"balanced_accuracy_clean": 0.9, "accuracy_biased": 0.7}
        original = [
            Row(experiment="x", method="original", split="test", chosen=1, metric=metric, value=value)
            for metric, value in before.items()
        ]
        return [*original, *(row for method in methods for row in self.rows_for(method))]

    @property
    def predictions(self) -> Any:
        return SimpleNamespace(paired=self.paired, paired_classes=lambda methods: [], intervals=lambda methods: {})

    def paired(self, methods: list[str]) -> list[Difference]:
        gain = self.gain
        if gain is None:
            return []
        ends = gain - 0.02, gain + 0.02
        return [Difference(each, "original", "balanced_accuracy_biased", gain, 0.01, *ends) for each in methods]


def advice(methods: list[str], **facts: Any) -> Any:
    experiment: Any = FakeExperiment(**facts)
    return recommend(experiment, gather_results(experiment, methods, experiment.rows(methods)))


@pytest.mark.parametrize(
    ("val", "rule", "best"),
    [
        ({"p-clarc": 0.8, "rr-clarc": 0.7}, "accuracy", "p-clarc"),
        ({"p-clarc": 0.7, "rr-clarc": 0.8}, "accuracy", "rr-clarc"),
        ({"p-clarc": 0.8, "rr-clarc": 0.8}, "accuracy", "rr-clarc"),  # of equals the method of the paper
        ({"p-clarc": 0.7, "rr-clarc": None}, "accuracy", "p-clarc"),
        ({"a-clarc": 0.3, "rr-clarc": 0.1}, "derivative", "rr-clarc"),  # the smaller, the better
        ({"vanilla": 1.0, "rr-clarc": 0.6}, "accuracy", "rr-clarc"),  # fine-tuning corrects nothing
    ],
)
def test_the_best_on_validation_images(val: dict[str, float | None], rule: str, best: str) -> None:
    found = advice(list(val), val=val, rule=rule)
    assert found.method == best
    assert found.sentences[0].startswith(f"Recommended: {best}, by the ")
    assert len(found.sentences) == 1, "the verdict on test images is the report's to tell"


def test_a_method_that_takes_the_direction_out_is_not_compared_by_the_derivative() -> None:
    """Nothing is left along it by construction: P-ClArC would win whatever its model does."""
    found = advice(["p-clarc", "rr-clarc"], val={"p-clarc": 0.0, "rr-clarc": 0.1}, rule="derivative")
    assert found.method == "rr-clarc"
    assert "p-clarc" not in found.sentences[0]
    assert "estimated effect of the artifact on the log-odds" in found.sentences[0]
    assert found.sentences[1].startswith("Not compared by that: p-clarc. It takes the direction out")
    several = advice(
        ["p-clarc", "leace", "rr-clarc"], val={"p-clarc": 0, "leace": 0, "rr-clarc": 0.1}, rule="derivative"
    )
    assert several.sentences[1] == (
        "Not compared by that: p-clarc, leace. They take the direction out of the activations, so what their heads "
        "would do along it says nothing about the artifact."
    )
    alone = advice(["p-clarc"], val={"p-clarc": 0.0}, rule="derivative")
    assert alone.method is None
    assert alone.sentences[0].startswith("No model is recommended: none can be chosen by the estimated effect of")


def test_how_equals_are_told_apart_is_said() -> None:
    found = advice(["a-clarc", "rr-clarc"], val={"a-clarc": 0.8, "rr-clarc": 0.8})
    assert found.sentences[0].endswith("(80.0 %; a-clarc 80.0 %; of equals, rr-clarc or else the first is taken).")


def test_the_others_stand_beside_it() -> None:
    found = advice(["p-clarc", "rr-clarc"], val={"p-clarc": 0.75, "rr-clarc": 0.8})
    assert found.sentences[0].endswith("(80.0 %; p-clarc 75.0 %).")


@pytest.mark.parametrize(("rule", "told"), [("accuracy", "50.0 %"), ("derivative", "0.5")])
def test_one_that_is_no_better_than_the_original_is_not_recommended(rule: str, told: str) -> None:
    found = advice(["rr-clarc"], val={"rr-clarc": 0.5}, rule=rule)
    assert found.method is None
    assert found.sentences[0].startswith("No model is recommended. The best is rr-clarc, by the ")
    assert found.sentences[1] == f"By that it is no better than the original model ({told})."
    assert found.sentences[-1].startswith("What may help: more images with the artifact")
    assert found.sentences[-1].endswith("To export it all the same, name it: hansfree export RUN METHOD.")


@pytest.mark.parametrize("gain", [0.01, -0.1])
def test_one_that_is_not_corrected_on_test_images_is_not_recommended(gain: float) -> None:
    found = advice(["p-clarc", "rr-clarc"], val={"p-clarc": 0.7, "rr-clarc": 0.8}, gain=gain)
    assert found.method is None
    assert found.sentences[1] == "On test images it is not clearly better than the original model."


@pytest.mark.parametrize(
    ("is_inserted", "way"),
    [(False, "put the artifact into images (artifact.insert"), (True, "hold out more test images")],
)
def test_where_it_cannot_be_known_the_best_on_validation_images_is_a_guess(is_inserted: bool, way: str) -> None:
    found = advice(["rr-clarc"], val={"rr-clarc": 0.8}, gain=None, is_inserted=is_inserted)
    assert found.method == "rr-clarc"
    assert found.sentences[0].startswith("Best guess, not proven: rr-clarc, by the ")
    assert found.sentences[-1].startswith(f"Before you use rr-clarc, {way}")
    assert "Recommended" not in " ".join(found.sentences)


def test_test_images_may_refuse_and_not_choose() -> None:
    val = {"p-clarc": 0.7, "rr-clarc": 0.8}
    assert advice(list(val), val=val, test={"p-clarc": 0.99}).method == "rr-clarc"
    found = advice(list(val), val=val, test={"rr-clarc": 0.5})
    assert found.method is None
    assert found.sentences[0].startswith(
        "Do not use rr-clarc, though it is the best on validation images: its balanced accuracy"
    )


def test_none_that_is_admissible() -> None:
    found = advice(["vanilla", "p-clarc", "rr-clarc"], val={"vanilla": 0.9, "p-clarc": None, "rr-clarc": None})
    assert found.method is None
    assert found.sentences == (
        "Do not use any of the corrected models: none is admissible (p-clarc: diverged; rr-clarc: diverged).",
    )
