"""The layer search: all layers in one pass, scores, trials and the selection among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jvp

from hansfree.activations import collect_activations
from hansfree.activations.features import spread
from hansfree.corrections.selection import log_odds
from hansfree.corrections.training import FineTuning
from hansfree.data.datasets import Subset
from hansfree.errors import DataError, OptionError
from hansfree.metrics import Score
from hansfree.models.layers import feature_layers
from hansfree.models.surgery import exact_forward_mode, split
from hansfree.pipeline.layer_search import (
    EveryLayer,
    LayerChoice,
    LayerScore,
    Trial,
    _take,
    choose_layer,
    measure_direction,
)
from hansfree.reasons import Reason, ReasonCode
from tests.corrections.examples import CASES, TinyImages, snapshot
from tests.pipeline.worlds import Mixing, Squares, make_data

TUNING = FineTuning(learning_rate=1e-3, epochs=5)


@pytest.fixture(scope="module")
def choice() -> LayerChoice:
    model = Mixing().eval()
    before = snapshot(model)
    found = choose_layer(model, make_data(), tuning=TUNING)
    assert snapshot(model) == before
    return found


def test_the_layer_with_a_direction_of_its_own_is_taken_and_not_the_one_that_looks_like_the_class(
    choice: LayerChoice,
) -> None:
    assert [score.layer for score in choice.scores] == ["apart", "mixed"]
    apart, mixed = choice.scores
    assert (apart.level, mixed.level) == ("good", "poor")
    assert mixed.overlap is not None
    assert apart.overlap is not None
    assert abs(mixed.overlap) > 0.9 > 0.3 > abs(apart.overlap)
    assert choice.layer == "apart"
    assert choice.trials["apart"].biased.value > choice.trials["mixed"].biased.value + 0.1  # type: ignore[union-attr]
    assert "best of 2" in choice.reason


def test_no_test_image_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    looked: list[int] = []
    pixels = Squares.pixels

    def watched(self: Squares, index: int) -> tuple[np.ndarray, np.ndarray]:
        looked.append(int(self.ids[index]))
        return pixels(self, index)

    monkeypatch.setattr(Squares, "pixels", watched)
    choose_layer(Mixing().eval(), data, tuning=FineTuning(epochs=1), strengths=[1.0], confirm=1)
    assert looked
    assert max(looked) < 2000


def test_only_named_layers_and_what_is_refused() -> None:
    model, data = Mixing().eval(), make_data()
    assert choose_layer(model, data, layers=["mixed"], confirm=0).layer == "mixed"
    found = choose_layer(model, data, confirm=0)
    assert (found.layer, dict(found.trials)) == ("apart", {})
    assert "None was tried" in found.reason
    with pytest.raises(OptionError, match="'fcc' holds no features"):
        choose_layer(model, data, layers=["fcc"], confirm=0)
    with pytest.raises(OptionError, match="strengths are not empty"):
        choose_layer(model, data, strengths=[])
    with pytest.raises(DataError, match="0 training images of the biased class are with the artifact"):
        choose_layer(model, replace(data, train=Squares(40, artifact="none")), confirm=0)


def test_without_counter_examples_a_trial_tells_only_that_the_clean_accuracy_is_kept() -> None:
    data = make_data(inserted=False)
    few = Subset(data.val_biased, np.flatnonzero(data.val_biased.labels == 0))
    found = choose_layer(Mixing().eval(), replace(data, val_biased=few), tuning=FineTuning(epochs=1), confirm=2)
    assert [trial.biased for trial in found.trials.values()] == [None, None]
    assert found.layer == "apart"
    assert "n/a" in found.reason


def test_a_layer_whose_trial_would_take_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.pipeline.layer_search._LARGEST", 0.99)  # `apart` is as large as an image
    found = choose_layer(Mixing().eval(), make_data(), tuning=FineTuning(epochs=1), strengths=[1.0], confirm=1)
    assert [*found.trials] == ["mixed"]
    assert found.remarks == ("apart was not tried: its output is larger than an image, and a trial takes long.",)


# The rule, on numbers


def score(layer: str, *, auc: float = 0.95, error: float = 5.0, reaction: float = 1.0, after: int = 10) -> LayerScore:
    return LayerScore(
        layer=layer, parameters_after=after, shape=(4,), auc=auc, error=error, reaction=reaction,
        overlap=0.1,
    )  # fmt: skip


def trial(value: float | None, strength: float | None = 1.0) -> Trial:
    biased = None if value is None else Score("balanced_accuracy_biased", value, 0.02, 100)
    return Trial(strength, Reason(ReasonCode.DIVERGED), biased, biased)


def test_the_worst_level_comes_first_and_then_the_reaction() -> None:
    layers = [score("a", auc=0.8), score("b", reaction=0.1), score("c", reaction=0.5), score("d", error=30.0)]
    layers.append(score("e", reaction=0.09))
    assert [one.layer for one in sorted(layers, key=lambda one: one.rank)] == ["c", "b", "a", "d", "e"]


def test_of_those_near_the_best_the_one_that_changes_least_is_taken() -> None:
    scores = [score("early", after=1000), score("middle", after=100), score("late", after=10)]
    trials = {"early": trial(0.80), "middle": trial(0.785), "late": trial(0.70)}
    layer, reason = _take(scores, trials)
    assert layer == "middle"
    assert "within one standard error of the best (early, 80.0 %)" in reason
    assert _take(scores, {**trials, "early": trial(0.9)})[0] == "early"
    assert _take(scores, {**trials, "early": trial(0.9, None)})[0] == "middle"
    layer, reason = _take(scores, {name: trial(0.9, None) for name in trials})
    assert (layer, reason.startswith("No strength was admissible")) == ("early", True)
    layer, reason = _take(scores, {"middle": trial(None), "late": trial(None)})
    assert layer == "middle"
    assert "n/a" in reason


def test_the_shift_is_the_averaged_one_along_the_direction_of_the_maxima() -> None:
    rng = np.random.default_rng(0)
    bits = np.arange(40) % 2 == 0
    maxima, means = rng.normal(size=(2, 40, 5))
    maxima[bits] += [3, 0, 0, 0, 0]
    found = measure_direction(maxima, means, bits, None, seed=0)
    unit = maxima[bits].mean(0) - maxima[~bits].mean(0)
    unit /= np.linalg.norm(unit)
    expected = unit * (unit @ (means[bits].mean(0) - means[~bits].mean(0)))
    np.testing.assert_allclose(found.shift, expected, rtol=1e-10)
    assert found.overlap is None


DATA = TinyImages(10)


def layers_of(model: nn.Module) -> list[str]:
    return [layer.name for layer in feature_layers(model, DATA.images[:2])]


@pytest.mark.parametrize("name", CASES)
def test_all_layers_in_one_pass_are_each_in_its_own(name: str) -> None:
    model = CASES[name].model()
    before = snapshot(model)
    every = EveryLayer(model, layers_of(model), DATA.images[:2])
    pooled, logits = every.pooled(torch.split(DATA.images, 4))
    assert snapshot(model) == before
    assert CASES[name].layer in every.layers
    np.testing.assert_allclose(logits, model(DATA.images).detach().numpy(), rtol=1e-5, atol=1e-6)
    for layer in every.layers:
        for pooling in ("max", "mean"):
            expected = collect_activations(model, layer, DATA, pooling=pooling).pooled
            np.testing.assert_allclose(pooled[layer][pooling], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_one_backward_pass_gives_the_derivative_from_every_layer(name: str) -> None:
    layers = layers_of(CASES[name].model())
    model, images = CASES[name].model().double(), DATA.images.double()
    model.requires_grad_(False)
    every = EveryLayer(model, layers, images[:2])
    rng = np.random.default_rng(0)
    channels = {layer: every.pooled([images])[0][layer]["max"].shape[1] for layer in every.layers}
    shifts = {layer: rng.normal(size=count) for layer, count in channels.items()}
    found = every.slopes(torch.split(images, 3), shifts, 1)
    assert set(found) == set(every.layers)
    for layer, slopes in found.items():
        cut = split(model, layer, example=images[:2])
        live = cut.trunk(images)
        with exact_forward_mode(), torch.no_grad():
            expected = jvp(
                lambda *inputs, cut=cut: log_odds(cut.head(*cut.phi(*inputs)), 1),
                live,
                spread(torch.from_numpy(shifts[layer]), live),
            )[1]
        np.testing.assert_allclose(slopes, expected.numpy(), rtol=1e-8, atol=1e-12, err_msg=layer)
