"""Two shortcuts in one model: each correction leaves the other, the joint one takes both; the matrix says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from torch import nn

from hansfree.activations import Activations, collect_activations
from hansfree.cavs import CAV, PairCAV, class_direction, join_cavs
from hansfree.corrections import LatentCorrection, PClArC, RRClArC
from hansfree.corrections.training import FineTuning, Pretraining, pretrain
from hansfree.data.datasets import InMemory
from hansfree.errors import DataError
from hansfree.evaluation.evaluate import SideEffects, evaluate, measure_side_effects
from hansfree.models import build_model
from tests.pipeline.studies import Joint

ARTIFACTS = ("timestamp", "lsb")
TUNING = FineTuning(optimizer="adam", learning_rate=1e-3, epochs=5)


class Small(Joint):
    n_base, n_train, n_test = 1200, 400, 200


@dataclass(frozen=True)
class World:
    model: nn.Module
    train: Activations
    clean: Activations
    biased: dict[str, Activations]
    cavs: dict[str, CAV]
    has_any: np.ndarray  # training images with one of the four artifacts

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
    sets = {artifact: Small(artifact=artifact).data("demo") for artifact in ARTIFACTS}
    data = sets["timestamp"]
    model = build_model("demo", classes=4)
    pretrain(model, InMemory(data.learned), Pretraining(epochs=5, learning_rate=3e-3))

    def seen(images: object) -> Activations:
        return collect_activations(model, "features.10", images)

    cavs: dict[str, CAV] = {}
    for artifact, each in sets.items():
        assert each.pairs is not None
        without, within = map(seen, each.pairs)
        cavs[artifact] = PairCAV(count=1).fit_pairs(without.pooled, within.pooled)
    biased = {artifact: seen(each.test_biased) for artifact, each in sets.items()}
    assert data.train_biased is not None
    has_any = ~np.isin(data.train.ids, data.train_biased.ids)
    return World(model, seen(data.train), seen(data.test_clean), biased, cavs, has_any)


@pytest.mark.parametrize("method", [RRClArC, PClArC])
def test_one_correction_takes_both_shortcuts_and_each_alone_leaves_the_other(
    world: World, method: type[LatentCorrection]
) -> None:
    found = world.matrix(method)
    flips = {cell: score.value for cell, score in found.flips.items()}
    for mine, other in (ARTIFACTS, ARTIFACTS[::-1]):
        assert flips["original", mine] > 0.6
        assert flips[mine, mine] < flips["original", mine] - 0.1
        assert flips[mine, other] > flips["original", other] - 0.08
        assert flips["both", mine] < flips["original", mine] - 0.1
        assert found.biased["both", mine].value > found.biased["original", mine].value + 0.04
    assert found.clean["both"].value > found.clean["original"].value - 0.05


def test_the_cells_are_what_evaluate_says(world: World) -> None:
    fixed = world.corrected(world.cavs["lsb"])
    found = measure_side_effects({"fixed": fixed}, clean=world.clean, biased=world.biased)
    for artifact, images in world.biased.items():
        scores = {s.metric: s for s in evaluate(fixed, clean=world.clean, biased=images, biased_class=2)}
        assert found.flips["fixed", artifact] == scores["flip_rate"]
        assert found.biased["fixed", artifact] == scores["balanced_accuracy_biased"]
        assert found.clean["fixed"] == scores["balanced_accuracy_clean"]


def test_what_is_protected_stays_in_every_activation(world: World) -> None:
    own = class_direction(world.train.pooled, world.train.labels, 2, has_artifact=world.has_any)
    cav = world.cavs["lsb"]
    joint = join_cavs([cav], protect=[own])
    assert 15 < joint.angles_[0] < 75  # they do overlap
    (maps, *_) = next(world.biased["lsb"].stream(batch_size=50))

    def moved(cav: CAV) -> np.ndarray:
        edit = PClArC(cav).edit(world.train)
        return np.abs(np.einsum("nchw,c->nhw", (edit(maps) - maps).numpy(), own)).max()

    assert moved(cav) > 0.5
    assert moved(joint) < 1e-4
    edited = PClArC(joint).edit(world.train)(maps).amax((2, 3)).numpy()
    np.testing.assert_allclose(edited @ joint.directions_.T, np.tile(joint.clean_score_, (50, 1)), atol=1e-3)


def test_images_that_do_not_belong_are_refused(world: World) -> None:
    with pytest.raises(DataError, match="given 0 and 2"):
        measure_side_effects({}, clean=world.clean, biased=world.biased)
    with pytest.raises(DataError, match="artifact"):
        measure_side_effects({"original": world.model}, clean=world.clean, biased={"none": world.clean})
