"""Names of methods along further CAVs, and layers with channels last."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import SwinTransformer

from hansfree.activations import Activations
from hansfree.corrections import (
    CAVCorrection,
    LatentCorrection,
    Need,
    RRClArC,
    Vanilla,
    along_cavs,
    method_named,
    split_name,
    uses_cav,
)
from hansfree.corrections.training import FineTuning
from hansfree.errors import OptionError, UnknownNameError
from hansfree.evaluation.evaluate import evaluate
from tests.corrections.examples import CLASSES, Case, TinyImages, collect, fit_cav


def test_methods_along_a_cav_are_named_once_more_for_each_further_one() -> None:
    names = list(along_cavs(["vanilla", "rr-clarc", "leace", "p-clarc"], ["svm", "pair"]))
    along = ["rr-clarc", "rr-clarc@svm", "rr-clarc@pair"]
    assert names == ["vanilla", *along, "leace", "p-clarc", "p-clarc@svm", "p-clarc@pair"]
    assert list(along_cavs(["vanilla", "rr-clarc"], [])) == ["vanilla", "rr-clarc"]


@pytest.mark.parametrize("method", LatentCorrection.members())
def test_every_name_leads_back_to_its_method(method: str) -> None:
    assert split_name(method) == (method, None)
    assert method_named(method) is LatentCorrection.named(method)
    for name in [*along_cavs([method], ["svm"])][1:]:
        assert split_name(name) == (method, "svm")
        assert method_named(name) is LatentCorrection.named(method)
    assert uses_cav(method) == issubclass(LatentCorrection.named(method), CAVCorrection)


def test_whose_name_it_is() -> None:
    assert method_named("rr-clarc@svm") is RRClArC
    assert method_named("vanilla") is Vanilla


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rr-clrc@svm", "There is no method called 'rr-clrc'. Did you mean 'rr-clarc'?"),
        ("rr-clarc@swm", "There is no CAV called 'swm'. Did you mean 'svm'?"),
        ("rr-clarc@", "There is no CAV called ''."),
        ("rr-clarc@svm@svm", "There is no CAV called 'svm@svm'."),
    ],
)
def test_a_wrong_half_gets_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        method_named(name)
    assert sentence in str(caught.value)


def test_a_method_that_goes_along_no_cav_is_refused() -> None:
    with pytest.raises(OptionError, match="There is no 'vanilla@svm': vanilla uses no CAV"):
        method_named("vanilla@svm")


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


def corrected(case: Case, name: str) -> tuple[nn.Module, nn.Module, Activations, dict[tuple[str, int | None], float]]:
    """Correct the case's model and score the result."""
    model, data = (
        case.model(),
        TinyImages(artifact="pairs" if Need.PAIRS in LatentCorrection.named(name).info.needs else "leaks"),
    )
    activations = collect(case, model, data)
    cav = fit_cav(activations)
    fixed = LatentCorrection.named(name).for_run(cav=cav, images=data, tuning=TUNING).correct(model, activations)
    held_out = [collect(case, model, TinyImages(30, artifact=kind, seed=4)) for kind in ("none", "all")]
    scores = evaluate(fixed, clean=held_out[0], biased=held_out[1], biased_class=0, cav=cav)
    return model, fixed, activations, {(score.metric, score.group): score.value for score in scores}


@pytest.mark.parametrize("build", [Last, Untraceable])
@pytest.mark.parametrize("name", LatentCorrection.members())
def test_channels_last_give_the_same_model_as_channels_first(name: str, build: type[Last]) -> None:
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
@pytest.mark.parametrize("name", LatentCorrection.members())
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
    assert scores["tcav", None] >= 0
