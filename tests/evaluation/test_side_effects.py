"""Two shortcuts in one model: each correction leaves the other, the joint one takes both; the matrix says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from hansfree.activations import Activations
from hansfree.cavs import CAV, PairCAV, class_direction, join_cavs
from hansfree.corrections import LatentCorrection, PClArC, RRClArC
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError
from hansfree.evaluation.evaluate import SideEffects, evaluate, measure_side_effects
from tests.corrections.examples import Case, TinyImages, collect, train_at_once

ARTIFACTS = {"red": (slice(0, 4), [1.0, -0.6, 0.8]), "green": (slice(4, 8), [-0.8, 1.0, -0.6])}  # corner and colour
CASE = Case(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 3)), "1", "1")
TUNING = FineTuning(optimizer="adam", learning_rate=1e-2, epochs=5, batch_size=50)


class Patched(TinyImages):
    """The images without any artifact, with one in all of them, or each in most of a class of its own."""

    def __init__(self, count: int, artifact: str | None = None, *, seed: int = 0) -> None:
        super().__init__(count, artifact="none", seed=seed)
        drawn = np.random.default_rng(seed).random(count) < 0.7
        for label, (name, (corner, colour)) in enumerate(ARTIFACTS.items()):
            has_it = drawn & (self.labels == label) if artifact == "both" else np.full(count, artifact == name)
            self.images[has_it, :, corner, corner] += torch.tensor(colour)[:, None, None]
            self.has_artifact = self.has_artifact | has_it


@dataclass(frozen=True)
class World:
    model: nn.Module
    train: Activations
    clean: Activations
    biased: dict[str, Activations]
    cavs: dict[str, CAV]

    def corrected(self, cav: CAV, method: type[LatentCorrection] = PClArC) -> nn.Module:
        return method(cav, tuning=TUNING).correct(self.model, self.train)  # type: ignore[call-arg]

    def matrix(self, method: type[LatentCorrection]) -> SideEffects:
        fixed = {name: self.corrected(cav, method) for name, cav in self.cavs.items()}
        both = self.corrected(join_cavs(list(self.cavs.values())), method)
        return measure_side_effects(
            {"original": self.model, **fixed, "both": both}, clean=self.clean, biased=self.biased
        )


@pytest.fixture(scope="module")
def world() -> World:
    model, data = CASE.model(), Patched(600, "both")
    train_at_once(model, data, steps=15)
    clean, *biased = (collect(CASE, model, Patched(300, name, seed=1)) for name in (None, *ARTIFACTS))
    cavs: dict[str, CAV] = {}
    for name in ARTIFACTS:
        without, within = (collect(CASE, model, Patched(300, which, seed=2)).pooled for which in (None, name))
        cavs[name] = PairCAV(count=1).fit_pairs(without, within)
    return World(model, collect(CASE, model, data), clean, dict(zip(ARTIFACTS, biased)), cavs)


@pytest.mark.parametrize("method", [RRClArC, PClArC])
def test_one_correction_takes_both_shortcuts_and_each_alone_leaves_the_other(
    world: World, method: type[LatentCorrection]
) -> None:
    found = world.matrix(method)
    flips = {cell: score.value for cell, score in found.flips.items()}
    for mine, other in (("red", "green"), ("green", "red")):
        assert flips["original", mine] > 0.35
        assert flips[mine, mine] < flips["original", mine] - 0.1
        assert flips[mine, other] > flips[mine, mine] + 0.15
        assert flips["both", mine] < flips["original", mine] - 0.1
        assert found.biased["both", mine].value > found.biased["original", mine].value + 0.04


def test_the_cells_are_what_evaluate_says(world: World) -> None:
    fixed = world.corrected(world.cavs["red"])
    found = measure_side_effects({"fixed": fixed}, clean=world.clean, biased=world.biased)
    for artifact, images in world.biased.items():
        scores = {s.metric: s for s in evaluate(fixed, clean=world.clean, biased=images, biased_class=2)}
        assert found.flips["fixed", artifact] == scores["flip_rate"]
        assert found.biased["fixed", artifact] == scores["balanced_accuracy_biased"]
        assert found.clean["fixed"] == scores["balanced_accuracy_clean"]


def test_what_is_protected_stays_in_every_activation(world: World) -> None:
    train = world.train
    own = class_direction(train.pooled, train.labels, 0, has_artifact=train.has_artifact)
    cav = world.cavs["red"]
    joint = join_cavs([cav], protect=[own])
    assert 15 < joint.angles_[0] < 75  # they do overlap
    (values, *_) = next(world.biased["red"].stream(batch_size=50))

    def moved(cav: CAV) -> float:
        return float(np.abs((PClArC(cav).edit(train)(values) - values).numpy() @ own).max())

    assert moved(cav) > 0.5
    assert moved(joint) < 1e-4
    edited = PClArC(joint).edit(train)(values).numpy()
    np.testing.assert_allclose(edited @ joint.directions_.T, np.tile(joint.clean_score_, (50, 1)), atol=1e-3)


def test_images_that_do_not_belong_are_refused(world: World) -> None:
    with pytest.raises(DataError, match="given 0 and 2"):
        measure_side_effects({}, clean=world.clean, biased=world.biased)
    with pytest.raises(DataError, match="artifact"):
        measure_side_effects({"original": world.model}, clean=world.clean, biased={"none": world.clean})
