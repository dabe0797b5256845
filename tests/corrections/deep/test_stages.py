"""Stages are found in every architecture: four, in the order of computation, with channels that are channels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.convnext import CNBlockConfig, ConvNeXt

from hansfree._internal.hashing import seeded
from hansfree.corrections.deep.stages import collect_pooled, find_stages, recorded, whole_output
from hansfree.errors import SplitError
from hansfree.models.surgery import run_recorded
from tests.corrections.examples import count_hooks, snapshot


def _timm(name: str, **options: object) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=3, **options)


def _vgg16() -> nn.Module:
    with torch.device("meta"):
        model = models.vgg16(num_classes=3)
    model.classifier = nn.Linear(512 * 49, 3)  # its own has 120 million weights
    model.features.to_empty(device="cpu")
    for parameter in model.features.parameters():
        nn.init.normal_(parameter, std=0.02)
    return model


def _convnext() -> nn.Module:
    widths = (16, 32, 64, 128, None)
    return ConvNeXt([CNBlockConfig(a, b, 1) for a, b in pairwise(widths)], num_classes=3)


def _swin() -> nn.Module:
    return models.SwinTransformer([4, 4], 24, [1, 1, 2, 1], [1, 2, 4, 8], [7, 7], num_classes=3)


# name -> how it is made, image size, and the channels of the four stages
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...]]] = {
    "resnet18": (lambda: models.resnet18(num_classes=3), 64, (64, 128, 256, 512)),
    "vgg16": (_vgg16, 32, (256, 512, 512, 512)),
    "efficientnet_b0": (lambda: models.efficientnet_b0(num_classes=3), 64, (144, 240, 672, 1280)),
    "densenet": (lambda: models.DenseNet(8, (2, 2, 2, 2), 16, num_classes=3), 64, (16, 16, 16, 32)),
    "convnext": (_convnext, 64, (16, 32, 64, 128)),
    "vit": (lambda: models.VisionTransformer(32, 16, 6, 4, 96, 192, num_classes=3), 32, (96,) * 4),
    "swin": (_swin, 64, (24, 48, 96, 192)),
    "mobilenet_v3_small": (lambda: models.mobilenet_v3_small(num_classes=3), 64, (72, 96, 288, 576)),
    "vit (timm)": (lambda: _timm("vit_tiny_patch16_224", img_size=32, depth=6), 32, (192,) * 4),
    "convnext (timm)": (lambda: _timm("convnext_atto", depths=(1, 1, 1, 1)), 64, (40, 80, 160, 320)),
}


def images(size: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_four_stages_in_order_with_their_channels(name: str) -> None:
    build, size, channels = ARCHITECTURES[name]
    with seeded(0):
        model = build().eval()
    before, batch = snapshot(model), images(size)
    stages = find_stages(model, batch)
    assert snapshot(model) == before, "also no hook is left"
    order, _ = run_recorded(model, batch)
    places = [order.index(stage.name) for stage in stages]
    assert places == sorted(set(places))
    with recorded(model, stages) as pooled:
        model(batch)
    assert [tuple(pooled[stage.name].shape) for stage in stages] == [(2, 2, width) for width in channels]
    sum(values.square().sum() for values in pooled.values()).backward()  # DenseNet overwrites its last stage
    first = next(model.parameters())
    assert first.grad is not None
    assert first.grad.isfinite().all()
    assert sum(map(count_hooks, model.modules())) == 0


def test_pooled_features_are_the_mean_and_the_maximum_over_positions() -> None:
    """For Swin, whose maps have their channels last, over height and width."""
    with seeded(0):
        swin = models.SwinTransformer([4, 4], 8, [1, 1], [1, 2], [4, 4], num_classes=3).eval()
    batch = images(32, 4)
    stages = find_stages(swin, batch)
    _, own = run_recorded(swin, batch)
    assert stages[0].order == (0, 3, 1, 2)
    with torch.no_grad(), recorded(swin, stages, whole_output) as maps:
        swin(batch)
    pooled = collect_pooled(swin, batch.split(2), stages)
    for stage, values in zip(stages, pooled):
        output = own[stage.name]
        output = output if stage.order else output.permute(0, 2, 3, 1)
        torch.testing.assert_close(maps[stage.name], output)
        torch.testing.assert_close(values[:, 0], output.mean((1, 2)))
        torch.testing.assert_close(values[:, 1], output.amax((1, 2)))


def test_attention_weights_are_no_maps() -> None:
    with seeded(0):
        model = _timm("vit_tiny_patch16_224", img_size=32, depth=6).eval()
    for block in model.blocks:
        block.attn.fused_attn = False
    assert [stage.name for stage in find_stages(model, images(32)) if "attn_drop" in stage.name] == []


def test_images_need_not_be_square() -> None:
    with seeded(0):
        model = models.resnet18(num_classes=3).eval()
    stages = find_stages(model, torch.randn(2, 3, 70, 101, generator=torch.Generator().manual_seed(0)))
    assert [stage.name for stage in stages] == ["layer1", "layer2", "layer3", "layer4"]


def test_a_network_without_maps_is_refused() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    with pytest.raises(SplitError, match="Sequential has no module with maps or tokens"):
        find_stages(flat, images(8))
