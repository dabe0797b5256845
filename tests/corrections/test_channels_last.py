"""A layer with its channels last is corrected as its twin is, which turns them before the layer and back behind it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import SwinTransformer

from hansfree.activations import Activations
from hansfree.corrections import Correction
from hansfree.corrections.training import FineTuning
from hansfree.evaluation import evaluate
from tests.corrections.examples import CLASSES, Case, TinyImages, collect, fit_cav

TUNING = FineTuning(learning_rate=0.05, epochs=2, batch_size=5)


class Last(nn.Module):
    """Maps with their channels last, mixed by a linear layer, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.mix, self.turn = nn.Conv2d(3, 6, 2, stride=2), nn.Linear(6, 6), nn.Identity()
        self.norm, self.hidden, self.fc = nn.LayerNorm(6), nn.Linear(6, 5), nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.mix(self.patches(images).permute(0, 2, 3, 1))
        return self.fc(torch.tanh(self.hidden(self.norm(self.turned(x)))).mean((1, 2)))

    def turned(self, x: Tensor) -> Tensor:
        return self.turn(x)


class First(Last):
    """The same numbers; the layer ``turn`` sees them with the channels first."""

    def turned(self, x: Tensor) -> Tensor:
        return self.turn(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Untraceable(Last):
    """The same, cut by hooks."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images if bool(images.isfinite().all()) else images.nan_to_num())


def corrected(case: Case, name: str) -> tuple[nn.Module, nn.Module, Activations, dict[str, float]]:
    """Correct the case's model and score the result."""
    model, data = case.model(), TinyImages(artifact="pairs" if Correction.named(name).uses_pairs else "leaks")
    activations = collect(case, model, data)
    cav = fit_cav(activations)
    fixed = Correction.named(name).for_run(cav=cav, images=data, tuning=TUNING).correct(model, activations)
    held_out = [collect(case, model, TinyImages(30, artifact=kind, seed=4)) for kind in ("none", "all")]
    scores = evaluate(fixed, clean=held_out[0], biased=held_out[1], biased_class=0, cav=cav)
    return model, fixed, activations, {score.metric + score.group: score.value for score in scores}


@pytest.mark.parametrize("build", [Last, Untraceable])
@pytest.mark.parametrize("name", Correction.members())
def test_it_is_corrected_as_its_twin_is(name: str, build: type[Last]) -> None:
    layer = "mix" if build is Untraceable else "turn"  # of a model that is not traced, the module that has channels
    _, expected, first, expected_scores = corrected(Case(First, "turn", "turn"), name)
    model, found, last, scores = corrected(Case(build, layer, layer), name)
    assert (first.order, last.order) == (None, (0, 3, 1, 2))
    assert first.shape == last.shape == (6, 4, 4)
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    assert scores == pytest.approx(expected_scores, rel=1e-3, abs=1e-5)
    images = TinyImages(5, seed=9).images
    torch.testing.assert_close(found(images), expected(images), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found(images), model(images))


@pytest.mark.parametrize("layer", ["features.3", "norm", "features.3.0.add_1"])
@pytest.mark.parametrize("name", Correction.members())
def test_swin_is_corrected(name: str, layer: str) -> None:
    case = Case(lambda: SwinTransformer([2, 2], 8, [1, 1], [2, 2], [2, 2], num_classes=CLASSES), layer, layer)
    model, found, activations, scores = corrected(case, name)
    assert type(found) is type(model)
    added = set(found.state_dict()) - set(model.state_dict())
    assert bool(added) == (name in ("p-clarc", "p-clarc-one-sided", "r-clarc", "leace"))
    assert all(key.startswith("hansfree_projection.") for key in added)
    assert set(model.state_dict()) <= set(found.state_dict())
    assert activations.shape == (16, 2, 2)
    images = TinyImages(5, seed=9).images
    assert not torch.allclose(found(images), model(images))
    assert scores["tcav"] >= 0
