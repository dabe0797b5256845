"""The one model that a run recommends, selected on validation images among latent and deep methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hansfree.corrections.selection import BalancedRule, DerivativeRule, Validation
from hansfree.data.biased import SETS
from hansfree.evaluation.results import Row
from hansfree.metrics import Difference, Score
from hansfree.pipeline.outcome import gather_results
from hansfree.pipeline.recommendation import recommend
from hansfree.reasons import Advice, AdviceCode
from hansfree.report.advice import describe_advice

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
    return SimpleNamespace(**sets, artifact="ruler", biased_class=0, is_inserted=is_inserted, transplant=None)


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


def advise(methods: list[str], **facts: Any) -> tuple[Advice, tuple[str, ...]]:
    experiment: Any = FakeExperiment(**facts)
    results = gather_results(experiment, methods, experiment.rows(methods))
    advice = recommend(experiment, results)
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
def test_the_best_on_validation_images_is_recommended(val: dict[str, float | None], rule: str, best: str) -> None:
    advice, sentences = advise(list(val), val=val, rule=rule)
    assert (advice.code, advice.method) == (AdviceCode.RECOMMENDED, best)
    assert len(sentences) == 1
    assert sentences[0].startswith(f"Recommended: {best}, by the ")


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
    advice, sentences = advise(list(facts["val"]), **facts)
    assert (advice.code, advice.method) == (code, None)
    assert sentence in " ".join(sentences)


@pytest.mark.parametrize(("is_inserted", "way"), [(False, "put the artifact into images"), (True, "hold out more")])
def test_without_evidence_the_best_is_a_guess(is_inserted: bool, way: str) -> None:
    advice, sentences = advise(["rr-clarc"], val={"rr-clarc": 0.8}, gain=None, is_inserted=is_inserted)
    assert (advice.code, advice.method) == (AdviceCode.BEST_GUESS, "rr-clarc")
    assert sentences[-1].startswith(f"Before you use rr-clarc, {way}")


def test_the_derivative_does_not_compare_models_without_the_direction_and_deep_ones() -> None:
    """Without the direction nothing is left along it by construction; deep methods have other activations."""
    val: dict[str, float | None] = {"p-clarc": 0.0, "rr-clarc": 0.1}
    advice, sentences = advise(["p-clarc", "rr-clarc"], val=val, rule="derivative")
    assert (advice.method, advice.not_compared) == ("rr-clarc", ("p-clarc",))
    assert "p-clarc" not in sentences[0]
    assert sentences[1].startswith("Not compared by that: p-clarc (without the direction")


def test_test_images_do_not_select() -> None:
    val: dict[str, float | None] = {"p-clarc": 0.7, "rr-clarc": 0.8}
    advice, sentences = advise(list(val), val=val, test={"p-clarc": 0.99})
    assert advice.method == "rr-clarc"
    assert sentences[0].endswith("(80.0 %; p-clarc 70.0 %).")
