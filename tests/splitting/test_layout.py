"""Maps with their channels last are refused, wherever they come from; maps with channels first and tokens pass."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.ops.misc import Permute

from hansfree.activations import collect_activations
from hansfree.errors import DataError
from hansfree.splitting import check_layout, split
from tests.activations.samples import Pictures


class Turned(nn.Module):
    """Turn the axes there and back in every spelling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Linear(4, 2)
        self.norm, self.whole = nn.LayerNorm(4), nn.LayerNorm((4, 30, 30))

    def forward(self, x: Tensor) -> Tensor:
        x = self.whole(self.conv(x))
        x = self.gate(x.mean((2, 3)))[:, :, None, None] * x  # mul
        x = torch.permute(x, dims=(0, 2, 3, 1)).relu()  # relu: last
        x = x.transpose(-1, 2).transpose(1, 2) + 1  # add: first
        x = self.norm(x.permute(0, 2, 3, 1)) + 1  # add_1: last
        return self.fc(x.mean((1, 2)))


class Untraceable(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.fc = inner, nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            return x
        x = self.inner(x)
        return self.fc(x.mean((1, 2)) if x.shape[-1] == 8 else x.mean((2, 3)))


def last() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), Permute([0, 2, 3, 1]), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())


def first() -> nn.Module:
    return nn.Sequential(*last(), Permute([0, 3, 1, 2]), nn.Dropout())


MODELS = {
    "swin": lambda: models.SwinTransformer([4, 4], 8, [1, 2], [2, 2], [4, 4], num_classes=3),
    "convnext": lambda: models.ConvNeXt(
        [models.convnext.CNBlockConfig(8, 16, 1), models.convnext.CNBlockConfig(16, None, 1)], num_classes=3
    ),
    "resnet": lambda: models.resnet18(num_classes=3),
    "vgg": lambda: nn.Sequential(models.vgg11(init_weights=False).features, nn.Flatten(), nn.Linear(512, 3)),
    "efficientnet": lambda: models.efficientnet_b0(num_classes=3),
    "vit": lambda: models.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=3),
    "turned": Turned,
    "untraceable last": lambda: Untraceable(last()),
    "untraceable first": lambda: Untraceable(first()),
}


@functools.cache
def built(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name]().eval()


IMAGES = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("swin", "features.0"),
        ("swin", "features.1"),
        ("swin", "features.2"),
        ("swin", "features.3"),
        ("swin", "features.3.0.add"),
        ("swin", "features.3.1.norm1"),
        ("swin", "features.3.1.attn"),
        ("swin", "features.3.1.mlp"),
        ("swin", "features.3.1.stochastic_depth_1"),
        ("swin", "norm"),
        ("convnext", "features.3.0.block.1"),
        ("convnext", "features.3.0.block.2"),
        ("convnext", "features.3.0.block.4"),
        ("convnext", "features.3.0.block.5"),
        ("turned", "relu"),
        ("turned", "add_1"),
        ("untraceable last", "inner"),
        ("untraceable last", "inner.1"),
        ("untraceable last", "inner.2"),
    ],
)
def test_channels_last_are_refused(name: str, layer: str) -> None:
    cut = split(built(name), layer, example=IMAGES)
    assert cut.trunk(IMAGES)[0].ndim == 4
    with pytest.raises(DataError, match=r"channels last \(n, height, width, channels\), which is not supported yet"):
        check_layout(cut.trunk, layer, IMAGES)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("swin", "features.0.0"),
        ("swin", "permute"),
        ("convnext", "features.1"),
        ("convnext", "features.2.0"),
        ("convnext", "features.3.0.block.0"),
        ("convnext", "features.3.0.block.6"),
        ("convnext", "features.3"),
        ("resnet", "layer4.1.add"),
        ("vgg", "0.18"),
        ("efficientnet", "features.6.1.block.2"),
        ("efficientnet", "features.8"),
        ("vit", "conv_proj"),
        ("vit", "encoder.layers.encoder_layer_0.mlp"),
        ("vit", "encoder.ln"),
        ("turned", "conv"),
        ("turned", "whole"),
        ("turned", "mul"),
        ("turned", "add"),
        ("untraceable first", "inner"),
        ("untraceable first", "inner.0"),
    ],
)
def test_channels_first_and_tokens_pass(name: str, layer: str) -> None:
    check_layout(split(built(name), layer, example=IMAGES).trunk, layer, IMAGES)


def test_an_axis_in_between_is_named() -> None:
    with pytest.raises(DataError, match="channels along axis 2"):
        check_layout(split(built("turned"), "transpose", example=IMAGES).trunk, "transpose", IMAGES)


def test_nothing_is_collected_from_a_refused_layer() -> None:
    data = Pictures(4, size=32)
    with pytest.raises(DataError, match=r"'features\.3' has its channels last"):
        collect_activations(built("swin"), "features.3", data)
    assert data.reads == {0: 1}
