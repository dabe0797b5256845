"""Evaluation from the cache against slow loops over images through the whole model."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.activations import Activations, collect_activations
from hansfree.cavs import SignalCAV
from hansfree.corrections import LatentCorrection
from hansfree.corrections.training import FineTuning
from hansfree.errors import CacheError, DataError
from hansfree.evaluation.evaluate import evaluate
from tests.corrections.examples import CASES, Case, TinyImages, collect, fit_cav, snapshot
from tests.corrections.reference import along, gradient_at_layer

COUNT = 14


class Scene:
    """A model, the same images without and with the artifact, and a CAV fitted on both."""

    def __init__(self, name: str) -> None:
        self.case: Case = CASES[name]
        self.model: nn.Module = self.case.model()
        self.data = {kind: TinyImages(COUNT, artifact=kind, seed=4) for kind in ("none", "all", "leaks")}
        with torch.no_grad():  # answers that are neither always the same nor always near: some of them flip
            *_, weight, bias = self.model.parameters()
            weight.mul_(8)
            bias.sub_(self.model(self.data["leaks"].images).mean(0))
        self.clean, self.biased, self.train = (
            collect(self.case, self.model, self.data[kind]) for kind in ("none", "all", "leaks")
        )
        self.cav = fit_cav(self.train)

    def corrected(self, name: str) -> nn.Module:
        tuning = FineTuning(learning_rate=0.05, epochs=2, batch_size=5)
        method = LatentCorrection.named(name).for_run(cav=self.cav, images=self.data["leaks"], tuning=tuning)
        return method.correct(self.model, self.train)

    def scores(self, model: nn.Module, **options: Any) -> dict[str, float]:
        options = {"cav": self.cav, "biased_class": 0, **options}
        return {s.metric: s.value for s in evaluate(model, clean=self.clean, biased=self.biased, **options)}


@cache
def scene_of(name: str) -> Scene:
    """Return a scene that no test changes."""
    return Scene(name)


def slopes_by_hand(scene: Scene, model: nn.Module, label: int = 0, images: TinyImages | None = None) -> list[Tensor]:
    """Return, image by image in float64, the derivative of the logit along unit h at each position.

    The hook of the reference is registered after the projection's, so it sees what the projection made.
    """
    model = model.double()
    h = torch.from_numpy(scene.cav.directions_[0])
    found = []
    for i in range(COUNT if images is None else len(images)):
        image = (images or scene.data["all"]).images[i : i + 1].double()
        _, gradient = gradient_at_layer(model, scene.case, image, lambda logits: logits[:, label])
        found.append(along(gradient, h)[0].detach())
    model.float()
    return found


def predictions(model: nn.Module, data: TinyImages) -> list[int]:
    return [int(model(data.images[i : i + 1]).argmax()) for i in range(COUNT)]


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, method) for name in CASES for method in (None, "p-clarc")), ("mlp", "vanilla"), ("tokens", "rr-clarc")],
)
def test_scores_are_those_of_slow_loops_over_images(name: str, method: str | None) -> None:
    scene = scene_of(name)
    model = scene.model if method is None else scene.corrected(method)
    before = snapshot(model)
    scores = scene.scores(model)
    assert snapshot(model) == before

    clean, biased = (predictions(model, scene.data[kind]) for kind in ("none", "all"))
    labels = scene.data["none"].labels
    assert scores["flip_rate"] == pytest.approx(np.mean([a != b for a, b in zip(clean, biased)]))
    assert scores["accuracy_clean"] == pytest.approx(np.mean([a == b for a, b in zip(clean, labels)]))
    assert scores["accuracy_biased"] == pytest.approx(np.mean([a == b for a, b in zip(biased, labels)]))
    with torch.no_grad():
        chances = [functional.softmax(model(scene.data[kind].images), 1)[:, 0] for kind in ("none", "all")]
    assert scores["probability_change"] == pytest.approx(float((chances[1] - chances[0]).mean()), abs=1e-5)

    if method == "p-clarc" and name == "graph node":
        return  # the projection stands in the edited graph, where no hook of the reference reaches
    slopes = slopes_by_hand(scene, model)
    assert scores["tcav"] == pytest.approx(np.mean([float(each.sum()) > 0 for each in slopes]))
    assert scores["tcav_sensitivity"] == pytest.approx(np.mean([abs(float(each.mean())) for each in slopes]), rel=1e-3)
    assert scores["tcav_sensitivity"] > 0, "before a projection it is zero by construction"
    sizes = np.mean([float(each.abs().mean()) for each in slopes])
    assert scores["tcav_sensitivity_positions"] == pytest.approx(sizes, rel=1e-3)
    positive, negative, zero = (
        sum(int(sign(each, 0).sum()) for each in slopes) for sign in (torch.gt, torch.lt, torch.eq)
    )
    assert scores["tcav_positions"] == pytest.approx(positive / (positive + negative))
    assert scores["tcav_zero_share"] == pytest.approx(zero / (positive + negative + zero))
    if (name, method) == ("convolution", None):  # loops that agree on zero everywhere would prove nothing
        assert 0 < scores["flip_rate"] < 1
        assert 0 < scores["tcav_positions"] < 1
        assert not any(metric.startswith("tcav") for metric in scene.scores(model, cav=None))


def test_images_that_cannot_be_paired_are_scored_apart() -> None:
    """A natural bias: other images, other labels, another number; nothing compares an image with itself."""
    scene = scene_of("convolution")
    biased = TinyImages(27, artifact="all", seed=8)
    with pytest.raises(DataError, match="same images"):
        evaluate(scene.model, clean=scene.clean, biased=collect(scene.case, scene.model, biased), biased_class=0)
    found = evaluate(
        scene.model,
        clean=scene.clean,
        biased=collect(scene.case, scene.model, biased),
        biased_class=0,
        inserted=False,
        cav=scene.cav,
    )
    scores = {score.metric: score for score in found}
    with torch.no_grad():
        answers = scene.model(biased.images).argmax(1).numpy()
    assert scores["accuracy_biased"].value == pytest.approx(np.mean(answers == biased.labels))
    assert scores["accuracy_clean"].value == pytest.approx(
        np.mean(np.array(predictions(scene.model, scene.data["none"])) == scene.data["none"].labels)
    )
    assert (scores["accuracy_clean"].n, scores["accuracy_biased"].n, scores["tcav"].n) == (COUNT, 27, 27)
    assert not {"flip_rate", "probability_change"} & set(scores)


@pytest.mark.parametrize("count", [0, 9])
@pytest.mark.parametrize("method", ["vanilla", "p-clarc"])
def test_of_few_images_with_the_artifact_only_the_derivative_is_scored(count: int, method: str) -> None:
    """It is taken on all images then: what would come of the artifact can be asked of any."""
    scene = scene_of("convolution")
    model = scene.corrected(method)
    few = collect(scene.case, scene.model, TinyImages(count, artifact="all", seed=8)) if count else None
    options: dict[str, Any] = {"biased_class": 0, "inserted": False, "cav": scene.cav}
    images = TinyImages(30, artifact="none", seed=4)
    clean = collect(scene.case, scene.model, images)
    found = {s.metric: s for s in evaluate(model, clean=clean, biased=few, **options)}
    assert not [name for name in found if name.endswith("_biased")]
    assert found["tcav"].n == found["tcav_positions"].n == 30 + count
    slopes = [slope.sum() for slope in slopes_by_hand(scene, copy.deepcopy(model), images=images)]
    if count == 0:
        assert found["tcav"].value == pytest.approx(np.mean([float(slope > 0) for slope in slopes]))


@pytest.mark.parametrize("biased_class", [-1, 3])
@pytest.mark.parametrize("has_cav", [True, False])
def test_a_class_that_the_model_does_not_have_is_refused(biased_class: int, has_cav: bool) -> None:
    scene = scene_of("convolution")
    with pytest.raises(DataError, match=f"biased class is {biased_class}, but 3 logits allow 0 to 2"):
        scene.scores(scene.model, biased_class=biased_class, cav=scene.cav if has_cav else None)


def biased_sets(scene: Scene) -> dict[str, Activations]:
    """Return sets that do not belong to the clean one."""
    data = TinyImages(COUNT, artifact="all", seed=4)
    data.ids = data.ids[::-1].copy()
    model = scene.case.model()
    with torch.no_grad():
        model.features.weight += 1
    return {
        "fewer": collect(scene.case, scene.model, TinyImages(COUNT - 1, artifact="all", seed=4)),
        "ids": collect(scene.case, scene.model, data),
        "labels": collect(scene.case, scene.model, TinyImages(COUNT, artifact="all", seed=5)),
        "layer": collect_activations(scene.model, "act", scene.data["all"]),
        "model": collect(scene.case, model, scene.data["all"]),
    }


def test_sets_that_do_not_belong_together_are_refused() -> None:
    scene = scene_of("convolution")
    others = biased_sets(scene)
    for biased in others.values():
        with pytest.raises(DataError, match="clean and the biased set"):
            evaluate(scene.model, clean=scene.clean, biased=biased, biased_class=0)
    with pytest.raises(DataError, match="different layers or models"):
        evaluate(scene.model, clean=scene.clean, biased=others["layer"], biased_class=0, inserted=False)
    foreign = replace(others["model"], has_artifact=None)
    with pytest.raises(CacheError, match="not taken from this model"):
        evaluate(scene.model, clean=foreign, biased=foreign, biased_class=0)
    for inserted in (True, False):
        with pytest.raises(DataError, match="biased images do not have the artifact"):
            evaluate(scene.model, clean=scene.clean, biased=scene.clean, biased_class=0, inserted=inserted)
    with pytest.raises(DataError, match="clean images have the artifact"):
        evaluate(scene.model, clean=scene.biased, biased=scene.biased, biased_class=0)
    with pytest.raises(DataError, match="say inserted=False"):
        evaluate(scene.model, clean=scene.clean, biased=None, biased_class=0)
    other = SignalCAV().fit(scene.train.pooled[:, :3], scene.train.has_artifact)
    with pytest.raises(DataError, match="The CAV has 3 channels, the layer 'features' has 6"):
        scene.scores(scene.model, cav=other)
    with pytest.raises(ValueError, match="fit it"):
        scene.scores(scene.model, cav=SignalCAV())
