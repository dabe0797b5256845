"""Maps with their channels last are turned, wherever they come from; maps with channels first and tokens stay."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.ops.misc import Permute

from hansfree.activations import collect_activations, cut_at
from hansfree.models.surgery import AxisOrder, insert_after, layer_order, layer_orders, remove_inserted, split
from tests.activations.samples import Pictures, hooked


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


class Windows(nn.Module):
    """Cut maps into windows and put them together again, as timm's Swin does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.rest = nn.Conv2d(3, 4, 8, stride=8), nn.Linear(4, 4), nn.Flatten(1, 2)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(self.conv(x).permute(0, 2, 3, 1))
        x = x.view(-1, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(-1, 2, 2, 4) * 2  # mul: windows along the first axis
        x = x.view(-1, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, 4)  # reshape_1: last
        x = self.rest(x).unflatten(1, (4, 4)) + 1  # add: last
        return self.fc(x.mean((1, 2)))


class Columns(nn.Module):
    """Positions in one row: channels before them until the transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.flat, self.narrow = nn.Conv2d(3, 4, 8, stride=8), nn.Flatten(2), nn.Conv1d(4, 4, 1)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.narrow(self.flat(self.conv(x)) + self.conv(x).flatten(start_dim=-2))
        x = torch.cat([x, x], dim=2).transpose(1, 2) + 1
        return self.fc(x).mean(1)


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
    "columns": Columns,
    "windows": Windows,
    "untraceable last": lambda: Untraceable(last()),
    "untraceable first": lambda: Untraceable(first()),
}


@functools.cache
def built(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name]().eval()


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))

# By model: layers with their channels last, and layers that stand as hansfree has them.
LAST = {
    "swin": "features.0 features.1 features.2 features.3 features.3.0.add features.3.1.norm1 features.3.1.attn "
    "features.3.1.mlp features.3.1.stochastic_depth_1 norm",
    "convnext": "features.3.0.block.1 features.3.0.block.2 features.3.0.block.4 features.3.0.block.5",
    "turned": "relu add_1",
    "windows": "reshape_1 add",
    "untraceable last": "inner inner.1 inner.2",
}
RIGHT = {
    "swin": "features.0.0 permute",
    "convnext": "features.1 features.2.0 features.3.0.block.0 features.3.0.block.6 features.3",
    "resnet": "layer4.1.add",
    "vgg": "0.18",
    "efficientnet": "features.6.1.block.2 features.8",
    "vit": "conv_proj encoder.layers.encoder_layer_0.mlp encoder.ln",
    "turned": "conv whole mul add",
    "columns": "conv_0 transpose add_1",
    "windows": "conv rest",
    "untraceable first": "inner inner.0",
}
TURNED: list[tuple[str, str, AxisOrder]] = [
    *((name, layer, (0, 3, 1, 2)) for name, layers in LAST.items() for layer in layers.split()),
    ("turned", "transpose", (0, 2, 1, 3)),
    *(("columns", layer, (0, 2, 1)) for layer in ("flat", "flatten", "narrow", "cat")),
]


@pytest.mark.parametrize(("name", "layer", "order"), TURNED)
def test_the_parts_turn_there_and_back(name: str, layer: str, order: AxisOrder) -> None:
    model = built(name)
    cut = split(model, layer, example=IMAGES)
    assert cut.order == order == layer_order(model, layer, IMAGES)
    with torch.no_grad():
        live = cut.trunk(IMAGES)
        torch.testing.assert_close(cut.head(*cut.phi(*live)), model(IMAGES))
    if layer in dict(model.named_modules()):
        raw = hooked(model, layer, [IMAGES])
        assert torch.equal(live[0], raw.permute(order))
        channels = raw.shape[order[{3: 2, 4: 1}[raw.ndim]]]
        assert live[0].shape[-1 if raw.ndim == 3 else 1] == channels


@pytest.mark.parametrize("name", RIGHT)
def test_channels_first_and_tokens_stay(name: str) -> None:
    layers = RIGHT[name].split()
    assert layer_orders(built(name), layers, IMAGES) == dict.fromkeys(layers)
    assert split(built(name), layers[0], example=IMAGES).order is None


@pytest.mark.parametrize(("name", "layer", "order"), TURNED)
def test_an_inserted_module_sees_its_own_layout(name: str, layer: str, order: AxisOrder) -> None:
    """Scale one channel: through the turn and back it must be that channel, and nothing else, that changes."""
    model = built(name)
    edited = insert_after(model, layer, _Scaled(), order=order)
    assert set(edited.state_dict()) == {*model.state_dict(), "hansfree_projection.factor"}
    cut = split(model, layer, example=IMAGES)
    with torch.no_grad():
        layer_output, *others = cut.trunk(IMAGES)
        expected = cut.head(*cut.phi(_Scaled()(layer_output), *others))
        torch.testing.assert_close(edited(IMAGES), expected)
        again = split(edited, layer, example=IMAGES)  # the name stands for the edited output from now on
        torch.testing.assert_close(again.head(*again.phi(*again.trunk(IMAGES))), expected)
        plain, module = remove_inserted(edited)
        torch.testing.assert_close(plain(IMAGES), model(IMAGES))
    assert isinstance(module, _Scaled)


class _Scaled(nn.Module):
    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(3.0))

    def forward(self, activations: Tensor) -> Tensor:
        result = activations.clone()
        if activations.ndim == 4:
            result[:, 1] *= self.factor
        else:
            result[..., 1] *= self.factor
        return result


@pytest.mark.parametrize(
    ("name", "layer"), [("swin", "features.3"), ("columns", "narrow"), ("untraceable last", "inner")]
)
def test_the_cache_holds_channels_first_and_is_cut_again_so(name: str, layer: str) -> None:
    model, data = built(name), Pictures(4, size=32)
    activations = collect_activations(model, layer, data)
    images = torch.stack([data[row][0] for row in range(4)])
    cut = split(model, layer, example=images)
    with torch.no_grad():
        expected = cut.trunk(images)[0]
    assert activations.order == cut.order is not None
    assert activations.shape == tuple(expected.shape[1:])
    torch.testing.assert_close(torch.cat([live[0] for live in activations.stream()]), expected)
    assert activations.pooled.shape == (4, expected.shape[1 if expected.ndim == 4 else 2])
    again = cut_at(model, activations)
    assert again.order == activations.order
    with torch.no_grad():
        live = next(activations.stream())
        torch.testing.assert_close(again.head(*again.phi(*live)), model(images))
