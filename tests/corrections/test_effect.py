"""The bias is there before, and gone after; fine-tuning alone does not take it away."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from hansfree.corrections import DFR, RRR, Augmented, LatentCorrection, RRClArC, Vanilla
from hansfree.corrections.training import FineTuning
from tests.corrections.examples import BiasedWorld, Case, TinyImages, collect, learn_shortcut

TUNING = FineTuning(optimizer="adam", learning_rate=1e-2, epochs=5, batch_size=50)


def latent_model() -> nn.Module:
    """A layer of 16 numbers: the artifact is one direction of it, up to the noise."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), nn.ReLU(), nn.Linear(16, 3))


CASE = Case(latent_model, "1", "1")


@pytest.fixture(scope="module")
def world() -> BiasedWorld:
    return learn_shortcut(CASE, steps=12)


def test_the_bias_is_there_before(world: BiasedWorld) -> None:
    before = world.scores(world.model)
    assert before["flip_rate"] > 0.4
    assert before["accuracy_clean"] - before["accuracy_biased"] > 0.25
    assert before["probability_change"] > 0.4
    assert before["tcav"] > 0.95


def test_vanilla_trains_but_does_not_take_the_bias_away(world: BiasedWorld) -> None:
    fixed = Vanilla(tuning=TUNING).correct(world.model, world.train)
    labels = torch.from_numpy(world.data.labels)
    before, after = (
        functional.cross_entropy(model(world.data.images), labels).item() for model in (world.model, fixed)
    )
    assert after < before - 1e-3
    assert world.scores(fixed)["flip_rate"] > 0.75 * world.scores(world.model)["flip_rate"]


def test_rr_clarc_takes_the_bias_away(world: BiasedWorld) -> None:
    before = world.scores(world.model)
    after = world.scores(RRClArC(world.cav, strength=1.0, tuning=TUNING).correct(world.model, world.train))
    assert after["tcav_sensitivity"] < 0.2 * before["tcav_sensitivity"]
    assert after["flip_rate"] < 0.6 * before["flip_rate"]
    assert after["accuracy_biased"] > before["accuracy_biased"] + 0.15
    assert after["accuracy_clean"] > before["accuracy_clean"] - 0.15


def test_a_class_specific_penalty_leaves_the_other_classes_alone(world: BiasedWorld) -> None:
    fixed = RRClArC(world.cav, strength=1.0, target=0, tuning=TUNING).correct(world.model, world.train)
    vanilla = Vanilla(tuning=TUNING).correct(world.model, world.train)
    left = [
        world.scores(fixed, label)["tcav_sensitivity"] / world.scores(vanilla, label)["tcav_sensitivity"]
        for label in range(3)
    ]
    assert left[0] < 0.2
    assert max(left[1:]) > 0.5


@pytest.mark.parametrize("name", ["p-clarc-one-sided", "r-clarc", "leace"])
def test_the_rivals_that_edit_activations_help_too(world: BiasedWorld, name: str) -> None:
    before = world.scores(world.model)
    method = LatentCorrection.named(name).for_run(cav=world.cav, images=world.data, tuning=TUNING)
    after = world.scores(method.correct(world.model, world.train))
    assert after["flip_rate"] < 0.8 * before["flip_rate"]
    if name != "leace":  # which changes all images
        assert after["accuracy_clean"] > before["accuracy_clean"] - 0.1


@pytest.mark.parametrize("method", [DFR(strength=1e-3), Augmented(tuning=TUNING)])
def test_with_pairs_the_artifact_loses_its_class(world: BiasedWorld, method: LatentCorrection) -> None:
    before = world.scores(world.model)
    pairs = collect(CASE, world.model, TinyImages(500, artifact="pairs"))
    after = world.scores(method.correct(world.model, pairs))
    assert after["flip_rate"] < 0.6 * before["flip_rate"]
    assert after["accuracy_biased"] > before["accuracy_biased"] + 0.15


def test_dfr_cannot_help_where_only_one_class_has_the_artifact(world: BiasedWorld) -> None:
    after = world.scores(DFR(strength=1e-3).correct(world.model, world.train))
    assert after["flip_rate"] > 0.75 * world.scores(world.model)["flip_rate"]


def test_rrr_lowers_the_gradient_on_the_mask(world: BiasedWorld) -> None:
    def on_mask(model: nn.Module) -> float:
        marked = np.flatnonzero(world.data.has_artifact)
        pixels = world.data.images[marked].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(pixels).log_softmax(1).sum(), pixels)
        return float((gradient**2 * world.data.masks[marked][:, None]).sum((1, 2, 3)).mean())

    fixed = RRR(world.data, strength=10.0, tuning=TUNING).correct(world.model, world.train)
    assert on_mask(fixed) < 0.5 * on_mask(Vanilla(tuning=TUNING).correct(world.model, world.train))
