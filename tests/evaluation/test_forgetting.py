"""Probes count an image once and see what a correction left; relearning is plain fine-tuning, watched."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from hansfree.corrections import PClArC, RRClArC, Vanilla
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError, OptionError, UndefinedMetricError
from hansfree.evaluation.evaluate import evaluate
from hansfree.evaluation.forgetting import (
    Forgetting,
    Probe,
    Relearning,
    RelearningCurve,
    Sides,
    held_out_auc,
    logit_changes,
    probe_artifact,
    relearn,
    reset_head,
)
from hansfree.metrics import Score
from tests.corrections.examples import CASES, BiasedWorld, Case, TinyImages, collect, learn_shortcut, snapshot

TUNING = FineTuning(optimizer="adam", learning_rate=1e-2, epochs=5, batch_size=50)


def deep_model() -> nn.Module:
    """The layer is the third module; what follows it has a hidden layer of its own."""
    widths = (3 * 8 * 8, 16, 12, 8, 3)
    layers: list[nn.Module] = [nn.Flatten()]
    for given, made in pairwise(widths):
        layers += [nn.Linear(given, made), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


CASE = Case(deep_model, "3", "3")


@cache
def world() -> BiasedWorld:
    return learn_shortcut(CASE, steps=20)


@cache
def corrected() -> nn.Module:
    w = world()
    return RRClArC(w.cav, strength=3.0, tuning=TUNING).correct(w.model, w.train)


def pairs(rng: np.random.Generator, n: int, shift: float) -> Sides:
    clean = rng.normal(size=(n, 3)) * np.array([1.0, 20.0, 0.1])
    return clean, clean + np.array([shift, 0.0, 0.0]) + 0.5 * rng.normal(size=(n, 3))


def test_the_auc_is_the_mean_over_folds_of_fresh_classifiers() -> None:
    clean, biased = pairs(np.random.default_rng(0), 50, 1.0)
    fold_of = np.random.default_rng(1).permutation(50) % 4
    expected = 0.0
    for fold in range(4):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        learned = np.concatenate([clean[fold_of != fold], biased[fold_of != fold]])
        model.fit(learned, np.arange(len(learned)) >= len(learned) // 2)
        held = np.concatenate([clean[fold_of == fold], biased[fold_of == fold]])
        bits = np.arange(len(held)) >= len(held) // 2
        expected += roc_auc_score(bits, model.decision_function(held)) * len(held) / 100
    found = held_out_auc((clean, biased), fold_of, "logits")
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert (found.metric, found.n) == ("probe_auc_logits", 50)


def test_a_change_of_logits_is_measured_by_their_spread() -> None:
    rng = np.random.default_rng(4)
    clean, moved = rng.normal(size=(2, 20, 3))
    found = logit_changes(clean, clean + moved)
    deviations = [row - row.mean() for row in clean]
    spread = np.sqrt(np.mean([np.sum((row - np.mean(deviations, axis=0)) ** 2) for row in deviations]))
    expected = [np.sqrt(np.sum((row - row.mean()) ** 2)) / spread for row in moved]
    np.testing.assert_allclose(found, expected)
    common = rng.normal(size=(20, 1))
    np.testing.assert_allclose(logit_changes(0.1 * clean, 0.1 * (clean + moved) + common), found)
    with pytest.raises(UndefinedMetricError, match="no unit"):
        logit_changes(np.ones((5, 3)), np.ones((5, 3)))


def probe_of(changes: np.ndarray) -> Probe:
    return Probe(*(Score("probe_auc", 0.5, 0.1, len(changes)) for _ in range(3)), changes=changes, trunk="a")


def test_what_remains_is_paired_by_image() -> None:
    changes = np.random.default_rng(5).uniform(1, 2, size=40)
    half = Forgetting(probe_of(changes), probe_of(changes / 2)).remaining
    assert half.value == pytest.approx(0.5)
    assert half.stderr == pytest.approx(0.0, abs=1e-12)
    other = Forgetting(probe_of(changes), probe_of(changes[::-1])).remaining
    left_out = [np.delete(changes[::-1], i).mean() / np.delete(changes, i).mean() for i in range(40)]
    jackknife = np.sqrt(39 / 40 * np.sum((left_out - np.mean(left_out)) ** 2))
    assert other.stderr == pytest.approx(jackknife, rel=0.02)
    with pytest.raises(DataError, match="40 and 39 images"):
        Forgetting(probe_of(changes), probe_of(changes[1:]))
    with pytest.raises(UndefinedMetricError, match="no share"):
        _ = Forgetting(probe_of(np.zeros(4)), probe_of(np.zeros(4))).remaining


def test_a_corrected_head_forgets_and_the_layer_does_not() -> None:
    w = world()
    facts = snapshot(corrected())
    before, after = (probe_artifact(model, clean=w.clean, biased=w.biased) for model in (w.model, corrected()))
    assert snapshot(corrected()) == facts
    assert before.logits.value > 0.85
    assert after.logits.value < 0.7
    assert before.layer == after.layer
    assert after.layer.value > 0.9
    found = Forgetting(before, after)
    assert 0.3 < found.remaining.value < 0.8
    assert "still hold the artifact" in found.describe()
    assert f"{100 * found.remaining.value:.0f} ±" in found.describe()
    moved = replace(after, trunk="another", layer=Score("probe_auc_layer", 0.61, 0.02, 300))
    assert "0.61 ± 0.02 after" in Forgetting(before, moved).describe()
    assert "still hold" not in Forgetting(before, moved).describe()


def test_hidden_features_are_what_the_last_layer_reads() -> None:
    w = world()
    kept = []
    handle = corrected().get_submodule("7").register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    with torch.no_grad():
        for kind in ("none", "all"):
            corrected()(TinyImages(300, artifact=kind, seed=1).images)  # type: ignore[arg-type]
    handle.remove()
    clean, biased = (tensor.double().numpy() for tensor in kept)
    fold_of = np.random.default_rng(0).permutation(300) % 5
    found = probe_artifact(corrected(), clean=w.clean, biased=w.biased).hidden
    assert found is not None
    assert found.value == pytest.approx(held_out_auc((clean, biased), fold_of, "hidden").value, abs=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_model_can_be_probed(name: str) -> None:
    case = CASES[name]
    model = case.model()
    clean, biased = (collect(case, model, TinyImages(40, artifact=kind)) for kind in ("none", "all"))
    found = probe_artifact(model, clean=clean, biased=biased)
    assert (found.hidden is None) == (name == "hooks")
    assert 0 <= found.logits.value <= 1
    assert found.changes.mean() > 0
    if found.hidden is None:
        assert "hidden" not in Forgetting(found, found).describe()


def test_a_projection_counts_as_part_of_the_model() -> None:
    w = world()
    projected = PClArC(w.cav, tuning=TUNING).correct(w.model, w.train)
    found = probe_artifact(projected, clean=w.clean, biased=w.biased)
    before = probe_artifact(w.model, clean=w.clean, biased=w.biased)
    assert found.changes.mean() < 0.8 * before.changes.mean()


def test_what_cannot_be_probed_is_refused() -> None:
    w = world()
    few = np.arange(9)
    with pytest.raises(DataError, match="at least 10 images, and there are 9"):
        probe_artifact(w.model, clean=w.clean.select(few), biased=w.biased.select(few))
    with pytest.raises(DataError, match="clean images have the artifact"):
        probe_artifact(w.model, clean=w.biased, biased=w.biased)
    with pytest.raises(DataError, match="same images"):
        probe_artifact(w.model, clean=w.clean, biased=replace(w.biased, ids=w.biased.ids[::-1]))


SLOW = replace(TUNING, learning_rate=1e-3, epochs=15)


def curve_of(model: nn.Module, tuning: FineTuning = SLOW) -> RelearningCurve:
    w = world()
    return relearn(model, w.train, clean=w.clean, biased=w.biased, biased_class=0, tuning=tuning)


def drawn(*values: float) -> RelearningCurve:
    scores = tuple(Score("probability_change", value, 0.01, 100) for value in values)
    return RelearningCurve(tuple(10 * i for i in range(len(values))), scores, scores)


def test_steps_are_read_from_a_straight_line() -> None:
    curve = drawn(0.1, 0.2, 0.15, 0.4)
    assert curve.steps_until(0.05) == 0
    assert curve.steps_until(0.175) == pytest.approx(7.5)
    assert curve.steps_until(0.3) == pytest.approx(26)
    assert curve.steps_until(0.41) is None


@pytest.mark.parametrize("method", [None, PClArC])
def test_both_ends_are_those_of_plain_fine_tuning(method: type[PClArC] | None) -> None:
    w = world()
    model = w.model if method is None else method(w.cav, tuning=TUNING).correct(w.model, w.train)
    tuning = replace(SLOW, epochs=2)
    facts = snapshot(model)
    curve = curve_of(model, tuning)
    assert snapshot(model) == facts
    assert curve.steps == (0, 10, 20)
    ends = [(model, 0)]
    if method is None:
        ends.append((Vanilla(tuning=tuning).correct(model, w.train), -1))
    for end, at in ends:
        scores = {score.metric: score for score in evaluate(end, clean=w.clean, biased=w.biased, biased_class=0)}
        for metric in ("flip_rate", "probability_change"):
            assert getattr(curve, metric)[at].value == pytest.approx(scores[metric].value, abs=1e-5)


def test_a_corrected_head_relearns_what_its_layers_still_hold() -> None:
    w = world()
    found = Relearning(*(curve_of(model) for model in (w.model, corrected(), reset_head(w.model, w.train))))
    assert found.half == pytest.approx(found.original.probability_change[0].value / 2)
    assert found.corrected.probability_change[0].value < 0.5 * found.half
    steps = found.corrected.steps_until(found.half)
    assert steps is not None
    assert 10 < steps < 100
    assert f"Half of the effect is back after {steps:.0f} steps; a fresh head reaches it" in found.describe()


def test_the_words_fit_the_curves() -> None:
    original = drawn(0.4, 0.4, 0.4)
    assert Relearning(original, drawn(0.1, 0.1, 0.15)).describe().endswith("is back not within 20 steps.")
    assert "was never gone" in Relearning(original, drawn(0.3, 0.3, 0.3)).describe()
    assert "a fresh head reaches it after 10 steps" in Relearning(original, original, drawn(0, 0.2, 0.3)).describe()
    with pytest.raises(DataError, match=r"by 0\.000 in the original model"):
        _ = Relearning(drawn(0.0), drawn(0.0)).half


def test_a_fresh_head_keeps_the_layers_and_draws_the_rest_by_its_seed() -> None:
    w = world()
    facts, state = snapshot(w.model), torch.random.get_rng_state()
    fresh, same, other = (reset_head(w.model, w.train, seed=seed) for seed in (0, 0, 1))
    assert snapshot(w.model) == facts
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, parameter in fresh.named_parameters():
        is_kept = name[0] in "13"
        assert torch.equal(parameter, w.model.get_parameter(name)) == is_kept
        assert torch.equal(parameter, same.get_parameter(name))
        assert torch.equal(parameter, other.get_parameter(name)) == is_kept


class Scaled(nn.Module):
    """A parameter that no module of torch owns."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 6, 8)
        self.weight = nn.Parameter(torch.ones(3, 6))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.features(images).flatten(1) @ self.weight.T


def test_what_cannot_be_relearned_is_refused() -> None:
    w = world()
    with pytest.raises(OptionError, match="counted in steps"):
        curve_of(w.model, FineTuning(optimizer="converged"))
    with pytest.raises(DataError, match="same images"):
        relearn(w.model, w.train, clean=w.clean, biased=replace(w.biased, ids=w.biased.ids + 1), biased_class=0)
    model = Scaled().eval()
    with pytest.raises(DataError, match="the model of Scaled cannot start anew"):
        reset_head(model, collect(CASES["convolution"], model, TinyImages()))
    labels = np.full(len(w.train), 3)
    with pytest.raises(DataError, match="classes 0 to 2"):
        relearn(w.model, replace(w.train, labels=labels), clean=w.clean, biased=w.biased, biased_class=0)
