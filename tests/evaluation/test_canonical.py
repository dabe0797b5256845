"""The canonical form gives the model's logits, conserves relevance exactly, and names what it has no rule for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import VGG, resnet18
from zennit.composites import EpsilonPlusFlat, LayerMapComposite, layer_map_base
from zennit.rules import Epsilon
from zennit.torchvision import ResNetCanonizer, VGGCanonizer
from zennit.types import BatchNorm, Linear

from hansfree.errors import LayerNotFoundError, SplitError
from hansfree.evaluation.canonical import canonical_form
from hansfree.evaluation.heatmaps import compute_heatmaps
from hansfree.models.surgery import split
from tests.evaluation.samples import seeded, settle, small_vgg, without_biases


@pytest.fixture(scope="module", params=["vgg16", "resnet18", "efficientnet_b0"])
def model(request) -> nn.Module:
    return without_biases(request.param)


@pytest.fixture
def images(model: nn.Module) -> Tensor:
    side = 32 if isinstance(model, VGG) else 64  # at 32 px nothing but borders would be left of EfficientNet's maps
    return seeded(2, 3, side, side, seed=9)


def relevance_of(form: nn.Module, images: Tensor, composite: LayerMapComposite) -> tuple[Tensor, Tensor]:
    """Return the relevance of the pixels for logit 1, and the logit."""
    images = images.clone().requires_grad_()
    with composite.context(form) as hooked:
        logit = hooked(images)[:, 1]
        (relevance,) = torch.autograd.grad(logit, images, logit.detach())
    return relevance.sum(dim=1), logit.detach()


def test_it_gives_the_logits_and_holds_no_batch_norm(model: nn.Module, images: Tensor) -> None:
    form = canonical_form(model, images[:1])
    torch.testing.assert_close(form(images), model(images), rtol=1e-9, atol=1e-9)
    assert not any(isinstance(module, BatchNorm) for module in form.modules())


def test_relevance_is_conserved_exactly_by_a_rule_that_loses_none(model: nn.Module, images: Tensor, caplog) -> None:
    # The epsilon rule shares all relevance out, whatever the signs; so a loss would be the form's. Measured: 4e-6.
    every_layer = LayerMapComposite([*layer_map_base(1e-9), (Linear, Epsilon(epsilon=1e-9))])
    total, logit = relevance_of(canonical_form(model, images[:1]), images, every_layer)
    torch.testing.assert_close(total.sum(dim=(1, 2)), logit, rtol=1e-4, atol=0)
    assert not caplog.records


def test_relevance_is_conserved_by_the_papers_composite(model: nn.Module, images: Tensor) -> None:
    # z+ has nobody to give relevance to where no input of a neuron speaks for it. After ReLU such a neuron has none;
    # after SiLU, negative outputs carry a little (1.2 % in EfficientNet, 3e-6 in the others).
    logit = model(images)[:, 1].detach()
    total = compute_heatmaps(model, images, 1).sum(dim=(1, 2))
    has_silu = any(isinstance(module, nn.SiLU) for module in model.modules())
    torch.testing.assert_close(total, logit, rtol=0.03 if has_silu else 1e-4, atol=0)


@pytest.mark.parametrize(
    ("build", "canonizer"),
    [(small_vgg, VGGCanonizer), (lambda: resnet18(num_classes=3), ResNetCanonizer)],
    ids=["vgg", "resnet"],
)
def test_it_gives_the_heatmaps_of_zennits_own_canonizers(build, canonizer) -> None:
    model = settle(build(), bias=True)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False
    images = seeded(2, 3, 32, 32)
    expected, _ = relevance_of(model, images, EpsilonPlusFlat(canonizers=[canonizer()]))
    # zennit leaves an identity batch norm that still divides by sqrt(1 + 1e-5).
    torch.testing.assert_close(compute_heatmaps(model, images, 1), expected, rtol=1e-3, atol=1e-5)


class Gated(nn.Module):
    """An activation scaled by a gate that depends on it, and by a factor that is no gate where asked."""

    def __init__(self, *, sharp: bool) -> None:
        super().__init__()
        self.conv, self.dense, self.sharp = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 1), sharp

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(images)
        gate = self.dense(maps.mean(dim=(2, 3), keepdim=True))
        gate = torch.exp(gate) if self.sharp else torch.sigmoid(gate)
        return torch.flatten(nn.functional.max_pool2d(maps * gate, 6), 1)


def test_a_gate_is_a_constant_factor() -> None:
    model = settle(Gated(sharp=False), bias=True)
    images = seeded(2, 3, 8, 8)
    heatmap = compute_heatmaps(model, images, 1)
    # By hand: all of the logit goes to the largest position of map 1, and flat from there to its 3 x 3 pixels.
    for image, found, logit in zip(images, heatmap, model(images)[:, 1].detach()):
        place = int(model.conv(image[None])[0, 1].argmax())
        row, column = divmod(place, 6)
        expected = torch.zeros(8, 8, dtype=torch.float64)
        expected[row : row + 3, column : column + 3] = logit / 9
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("sharp", "says"), [(False, ""), (True, "no rule for mean, exp, mul in Gated")])
def test_a_product_that_is_no_gate_is_named(sharp: bool, says: str, caplog) -> None:
    compute_heatmaps(settle(Gated(sharp=sharp), bias=True), seeded(1, 3, 8, 8), 0)
    assert says in caplog.text
    assert bool(says) == bool(caplog.records)


@pytest.mark.parametrize("layer", ["layer4.1.add", "layer4.1.bn2", "layer4.1.conv2", "layer2.0", "layer1.0.relu_0"])
def test_it_ends_at_the_layer(layer: str) -> None:
    model = settle(resnet18(num_classes=3), bias=True)
    images = seeded(2, 3, 32, 32)
    form = canonical_form(model, images[:1], layer=layer)
    expected = split(model, layer).trunk(images)[0]
    torch.testing.assert_close(form(images), expected)
    assert "fc" not in dict(form.named_modules())


def test_a_layer_that_is_not_there_is_named() -> None:
    model = settle(small_vgg(), bias=True)
    with pytest.raises(LayerNotFoundError, match=r"'features\.1'"):
        canonical_form(model, seeded(1, 3, 32, 32), layer="feature.1")


def test_weights_that_do_not_change_are_shared() -> None:
    model = settle(small_vgg(), bias=True)
    form = canonical_form(model, seeded(1, 3, 32, 32))
    assert form.classifier.get_submodule("0").weight.data_ptr() == model.classifier[0].weight.data_ptr()
    assert form.features.get_submodule("0").weight.data_ptr() != model.features[0].weight.data_ptr()


class Odd(nn.Module):
    """A convolution and a batch norm that do not simply follow each other."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv, self.norm, self.kind = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), kind

    def forward(self, images: Tensor) -> Tensor:
        if self.kind == "called before it":
            return self.conv(self.norm(images)).flatten(1)
        if self.kind == "one convolution, twice":
            return self.conv(self.norm(self.conv(images))).flatten(1)
        maps = self.conv(images)
        if self.kind == "read by another":
            return (maps + self.norm(maps)).flatten(1)
        if self.kind == "depends on the images":
            return maps.flatten(1) if images.sum() > 0 else -maps.flatten(1)
        return maps.flatten(1) if isinstance(images, torch.fx.Proxy) else 2 * maps.flatten(1)


@pytest.mark.parametrize(
    ("kind", "layer", "words"),
    [
        ("called before it", None, "BatchNorm2d that cannot be merged"),
        ("one convolution, twice", None, "(?=.*BatchNorm2d that cannot be merged)(?=.*called more than once)"),
        ("read by another", None, "BatchNorm2d that cannot be merged"),
        *(("depends on the images", layer, "cannot be traced") for layer in (None, "conv")),
        *(("another graph", layer, "does not give the model's logits") for layer in (None, "conv")),
    ],
)
def test_models_without_a_form_are_named(kind: str, layer: str | None, words: str) -> None:
    with pytest.raises(SplitError, match=words):
        canonical_form(settle(Odd(kind), bias=True), seeded(1, 3, 8, 8), layer=layer)


def test_other_squeeze_excite_nets_conserve_relevance_too(caplog) -> None:
    model = without_biases("mobilenet_v3_small")
    images = seeded(2, 3, 64, 64, seed=9)
    total = compute_heatmaps(model, images, 1).sum(dim=(1, 2))
    torch.testing.assert_close(total, model(images)[:, 1].detach(), rtol=0.05, atol=0)
    assert not caplog.records
