"""The rule sees what the artifact does, by transplants or by association, and prefers the corrected network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hansfree.corrections.deep.selection import (
    BUDGET,
    DeepValidation,
    ValidationScore,
    choose_candidate,
)
from hansfree.errors import DataError, UndefinedMetricError
from tests.corrections.deep.examples import KINDS, Drawn, Kind, corrected, scores, world
from tests.corrections.examples import snapshot

TRANSPLANTED = ValidationScore("transplants", clean=0.6, biased=0.3, effect=0.5, lost_classes=())
ASSOCIATED = ValidationScore("association", clean=0.6, biased=None, effect=0.4, lost_classes=())


@pytest.mark.parametrize("kind", KINDS)
def test_flips_by_transplants_follow_true_insertion(kind: Kind) -> None:
    biased = world(kind)
    validation = DeepValidation(biased.model, biased.train, Drawn(kind, 200, seed=5))
    matched = corrected(kind, "match")
    before = snapshot(matched)
    original, after = validation.score(biased.model), validation.score(matched)
    assert snapshot(matched) == before
    assert original.evidence == "transplants"
    assert original.effect > 0.25  # the flips of scores() are over class 0 alone, these over all images
    assert after.effect < 0.5 * original.effect
    assert after.clean == pytest.approx(scores(matched, kind)[1], abs=0.06)
    assert choose_candidate([original, after], original) == 1


class ByBrightness(nn.Module):
    """Answers by the class (channel 0) and, with a weight, by the artifact (channel 1)."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, weight]))

    def forward(self, images: Tensor) -> Tensor:
        logit = (images.mean((2, 3))[:, :2] * self.weight).sum(1)
        return torch.stack([-logit, logit], dim=1)


def with_counterexamples(seed: int, count: int = 400, classes: int = 2) -> TensorDataset:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    has_artifact = rng.random(count) < np.where(labels == 1, 0.8, 0.2)
    images = np.zeros((count, 3, 4, 4), dtype=np.float32)
    images[:, 0] = (np.where(labels == 1, 1, -1) + rng.normal(0, 1, count))[:, None, None]
    images[:, 1] = (np.where(has_artifact, 1, -1) + rng.normal(0, 0.3, count))[:, None, None]
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(has_artifact))


def test_association_is_the_correlation_within_classes() -> None:
    """With one artifact, the correlation of the logit with the artifact label after both lose their class means."""
    data, model = with_counterexamples(1), ByBrightness(0.7)
    found = DeepValidation(model, with_counterexamples(0), data).score(model).effect
    images, labels, has_artifact = data.tensors
    logit, bit = (model(images)[:, 1] - model(images)[:, 0]).detach().double(), has_artifact.double()
    for label in (0, 1):
        inside = labels == label
        logit[inside] -= logit[inside].mean()
        bit[inside] -= bit[inside].mean()
    expected = (logit * bit).sum() / (logit.norm() * bit.norm())
    assert found == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("is_flat", [True, False])
def test_one_logit_is_scored_as_two(is_flat: bool) -> None:
    class OneLogit(ByBrightness):
        def forward(self, images: Tensor) -> Tensor:
            logits = super().forward(images)
            difference = logits[:, 1] - logits[:, 0]
            return difference if is_flat else difference[:, None]

    validation = DeepValidation(ByBrightness(1.0), with_counterexamples(0), with_counterexamples(1))
    one, two = validation.score(OneLogit(1.0)), validation.score(ByBrightness(1.0))
    assert one == replace(two, effect=pytest.approx(two.effect, rel=1e-6))


def test_several_classes_as_the_model_numbers_them() -> None:
    """Four logits for classes 0, 1 and 2, of which validation images show only 1 and 2."""

    class Four(nn.Module):
        def __init__(self, weight: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(weight))

        def forward(self, images: Tensor) -> Tensor:
            means = images.mean((2, 3))
            logits = -(means[:, :1] - torch.arange(4.0)).square()
            return logits + self.weight * means[:, 1:2] * torch.tensor([0.0, 0.0, 1.0, 0.0])

    def images(labels: np.ndarray, seed: int) -> TensorDataset:
        rng = np.random.default_rng(seed)
        bits = rng.random(len(labels)) < np.where(labels == 2, 0.7, 0.3)
        pixels = np.zeros((len(labels), 3, 4, 4), dtype=np.float32)
        pixels[:, 0] = (labels + rng.normal(0, 0.1, len(labels)))[:, None, None]
        pixels[:, 1] = bits[:, None, None]
        return TensorDataset(torch.from_numpy(pixels), torch.from_numpy(labels), torch.from_numpy(bits))

    validation = DeepValidation(Four(1.0), images(np.arange(300) % 3, 0), images(1 + np.arange(200) % 2, 1))
    uses, ignores = validation.score(Four(0.5)), validation.score(Four(0.0))
    assert ignores.clean == 1.0
    assert ignores.lost_classes == ()
    assert uses.effect > 0.2 > abs(ignores.effect)


def test_confined_artifacts_beside_spread_ones_are_unjudged() -> None:
    def with_second(seed: int) -> TensorDataset:
        images, labels, first = with_counterexamples(seed).tensors
        second = (labels == 0) & (torch.arange(len(labels)) % 4 == 0)
        return TensorDataset(images, labels, torch.stack([first, second], dim=1))

    validation = DeepValidation(ByBrightness(1.0), with_second(0), with_second(1))
    assert validation.unjudged == (1,)
    assert validation.score(ByBrightness(1.0)).evidence == "association"


def test_the_strongest_of_candidates_that_are_as_good() -> None:
    cleans = [0.70, 0.69, 0.60, 0.70]
    found = [replace(ASSOCIATED, clean=clean, effect=0.0) for clean in cleans]
    original = replace(ASSOCIATED, clean=0.6, effect=0.0)
    strengths = [("match", 0.0), ("match", 1.0), ("match", 3.0), ("transplant", 9.0)]
    assert choose_candidate(found, original) == 0
    assert choose_candidate(found, original, strengths=strengths) == 1
    assert choose_candidate(found[:1] + found[2:], original, strengths=strengths[:1] + strengths[2:]) == 0
    assert choose_candidate(found, replace(original, clean=0.695), strengths=strengths) == 0  # 1 is no better than it


def test_a_score_that_is_not_finite_is_no_choice() -> None:
    with pytest.raises(UndefinedMetricError):
        choose_candidate([replace(ASSOCIATED, clean=float("nan"))], ASSOCIATED)


def test_validation_images_that_show_nothing_are_refused() -> None:
    images, labels, has_artifact = with_counterexamples(1).tensors
    without = TensorDataset(images, labels, torch.zeros_like(has_artifact))
    with pytest.raises(DataError, match="no class has enough validation images"):
        DeepValidation(ByBrightness(1.0), with_counterexamples(0), without)


@pytest.mark.parametrize(
    ("original", "candidates", "chosen"),
    [
        (TRANSPLANTED, [{"biased": 0.5, "effect": 0.1}, {"biased": 0.6, "effect": 0.1}], 1),
        (TRANSPLANTED, [{"biased": 0.58, "effect": 0.3}, {"biased": 0.57, "effect": 0.05}], 1),
        (TRANSPLANTED, [{"biased": 0.6, "effect": 0.3}, {"biased": 0.5, "effect": 0.05}], 0),
        (TRANSPLANTED, [{"clean": 0.6 - 2 * BUDGET, "biased": 0.6, "effect": 0.0}], None),
        (TRANSPLANTED, [{"biased": 0.6, "effect": 0.0, "lost_classes": (2,)}], None),
        (TRANSPLANTED, [{"effect": 0.9}], None),
        (TRANSPLANTED, [], None),
        (ASSOCIATED, [{"effect": -0.4, "clean": 0.5}, {"effect": -0.1, "clean": 0.5}], 1),
        (ASSOCIATED, [{"effect": 0.0, "clean": 0.55}], 0),
    ],
)
def test_the_choice(original: ValidationScore, candidates: list[dict[str, Any]], chosen: int | None) -> None:
    assert choose_candidate([replace(original, **each) for each in candidates], original) == chosen
