"""What LRP has no rules for is explained by gradient x input, says so, and never stops a run."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import SwinTransformer, resnet18

from hansfree.errors import LayerNotFoundError, SplitError
from hansfree.evaluation.heatmaps import compute_heatmaps, explanation_of
from hansfree.evaluation.localisation import compute_cav_heatmaps
from hansfree.models.surgery import insert_after, layer_order
from tests.evaluation.samples import seeded, settle, small_net


class Untraceable(nn.Module):
    """Looks at its images before it runs, and returns what it should wherever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.fc = nn.Conv2d(3, 4, 4, stride=4), nn.ReLU(inplace=True), nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        if not bool(images.isfinite().all()):
            raise ValueError("not finite")
        return self.fc(self.act(self.conv(images)).mean((2, 3)))


class ChannelsLast(nn.Module):
    """All linear, its maps with the channels last: LRP has rules for everything in it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.fc = nn.Conv2d(3, 4, 8, stride=8, bias=False), nn.Linear(4, 5), nn.Linear(80, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.mix(self.conv(images).permute(0, 2, 3, 1)).flatten(1))


def timm_model(name: str, **options: object) -> nn.Module:
    timm = pytest.importorskip("timm")
    return timm.create_model(name, num_classes=3, **options)  # type: ignore[no-any-return]


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "swin": (lambda: SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=3), "features.3"),
    "vit": (lambda: timm_model("vit_tiny_patch16_224", img_size=32, depth=2), "blocks.1"),
    "convnext": (lambda: timm_model("convnext_atto", depths=(1, 1, 1, 1)), "stages.3"),
    "untraceable": (Untraceable, "conv"),
}
IMAGES = seeded(3, 3, 32, 32)


@functools.cache
def built(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name][0]().double().eval()


@pytest.mark.parametrize("name", MODELS)
def test_gradient_x_input_where_lrp_has_no_rules(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = built(name)
    assert explanation_of(model, IMAGES) == "gradient x input"
    assert "Its heatmaps are gradient x input." in caplog.text
    found = compute_heatmaps(model, IMAGES, torch.tensor([0, 2, 1]), batch_size=2)
    # the derivative of every pixel's logit share, by finite differences along the image itself: sums up to x . grad
    for image, heatmap, label in zip(IMAGES, found, (0, 2, 1)):
        step = 1e-5
        with torch.no_grad():
            ends = [model(image[None] * (1 + sign * step))[0, label] for sign in (1, -1)]
        torch.testing.assert_close(heatmap.sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-7)
        assert heatmap.std() > 0


@pytest.mark.parametrize("name", MODELS)
def test_a_cav_is_localised_in_every_model(name: str) -> None:
    model, layer = built(name), MODELS[name][1]
    kept: list[Tensor] = []
    module = model.get_submodule(layer)
    handle = module.register_forward_hook(lambda _m, _a, output: kept.append(output.clone()))
    pixels = IMAGES.clone().requires_grad_()
    model(pixels)
    handle.remove()
    raw = kept[0]
    order = layer_order(model, layer, IMAGES[:1])
    assert (order is None) == (name != "swin")
    maps = raw if order is None else raw.permute(order)
    direction = seeded(maps.shape[2 if maps.ndim == 3 else 1], seed=1)
    score = torch.einsum("ntc,c->" if maps.ndim == 3 else "nchw,c->", maps, direction)
    (slope,) = torch.autograd.grad(score, pixels)
    found = compute_cav_heatmaps(model, layer, direction, IMAGES, batch_size=2)
    if name == "untraceable":
        assert explanation_of(model, IMAGES, layer=layer) == "gradient x input"
    torch.testing.assert_close(found, (slope * IMAGES).sum(1), rtol=1e-6, atol=1e-12)


def test_lrp_of_a_cav_finds_the_channels_of_a_turned_map() -> None:
    model = settle(ChannelsLast(), bias=False)
    direction = seeded(5, seed=1)
    assert explanation_of(model, IMAGES, layer="mix") == "lrp"
    score = (model.mix(model.conv(IMAGES).permute(0, 2, 3, 1)) @ direction).flatten(1).sum(1)
    found = compute_cav_heatmaps(model, "mix", direction, IMAGES)
    torch.testing.assert_close(found.sum((1, 2)), score.detach(), rtol=1e-4, atol=1e-6)


def test_what_lies_behind_the_layer_does_not_matter_to_its_explanation() -> None:
    model = built("vit")
    assert explanation_of(model, IMAGES, layer="patch_embed.proj") == "lrp"
    with pytest.raises(LayerNotFoundError, match="patch_embed"):
        explanation_of(model, IMAGES, layer="patch_embed.pro")


@pytest.mark.parametrize("build", [small_net, lambda: resnet18(num_classes=3)], ids=["small", "resnet"])
def test_what_lrp_conserves_is_explained_by_lrp(
    build: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    model = settle(build(), bias=True)
    assert explanation_of(model, IMAGES) == "lrp"
    assert not caplog.records
    by_choice = compute_heatmaps(model, IMAGES, 1)
    assert torch.equal(by_choice, compute_heatmaps(model, IMAGES, 1, explanation="lrp"))
    other = compute_heatmaps(model, IMAGES, 1, explanation="gradient x input")
    pixels = IMAGES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(pixels)[:, 1].sum(), pixels)
    torch.testing.assert_close(other, (slope * IMAGES).sum(1))
    assert not torch.allclose(other, by_choice)


def test_a_rule_that_fails_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a hook of zennit")

    monkeypatch.setattr("zennit.composites.EpsilonPlusFlat", fail)
    assert compute_heatmaps(settle(small_net(), bias=True), IMAGES, 1).shape == (3, 32, 32)
    assert "LRP fails on Sequential" in caplog.text


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_not_touched(name: str) -> None:
    model = built(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.train()
    compute_heatmaps(model, IMAGES, 1)
    assert model.training
    model.eval()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_a_projection_in_an_untraceable_model_is_explained_too() -> None:
    class Shift(nn.Module):
        def forward(self, activation: Tensor) -> Tensor:
            return activation * 2

    model = built("untraceable")
    edited = insert_after(model, "conv", Shift())
    assert explanation_of(edited, IMAGES, pass_through=(Shift,)) == "gradient x input"
    found = compute_heatmaps(edited, IMAGES, 1, pass_through=(Shift,))
    torch.testing.assert_close(found, 2 * compute_heatmaps(model, IMAGES, 1))


def test_lrp_that_is_asked_for_and_not_possible_is_an_error() -> None:
    with pytest.raises(SplitError, match="cannot be traced"):
        compute_heatmaps(built("untraceable"), IMAGES, 0, explanation="lrp")
