"""Small models of every kind that users bring: random weights, tiny pictures, no network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.ops.misc import Permute

from hansfree._internal.hashing import seeded
from hansfree.models import DemoNet, Output
from hansfree.models.surgery import Cut
from tests.activations.samples import Wired as Wired
from tests.activations.samples import lively


class Shifted(nn.Module):
    """Add to one channel."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor(10.0))

    def forward(self, activations: Tensor) -> Tensor:
        result = activations.clone()
        result.movedim(1 if activations.ndim == 4 else -1, 0)[1] += self.shift
        return result


class SmallNet(nn.Module):
    """A convolution, batch norm, ReLU, mean pooling and a linear layer."""

    def __init__(
        self, num_classes: int = 3, channels: int = 3, *, wrap: Callable[[Tensor], Any] = lambda logits: logits
    ) -> None:
        super().__init__()
        self.wrap = wrap  # puts the logits inside something
        self.conv = nn.Conv2d(channels, 6, 4, stride=4)
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.ReLU()
        self.fc = nn.Linear(6, num_classes)

    def forward(self, images: Tensor) -> Any:
        return self.wrap(self.fc(self.act(self.norm(self.conv(images))).mean((2, 3))))


def hugging_face_folder(folder: Path, *, labels: int = 3) -> Path:
    """Save a small ResNet of transformers as its users find it."""
    from transformers import ResNetConfig, ResNetForImageClassification
    from transformers.utils import logging

    config = ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=labels, hidden_act="relu"
    )
    logging.disable_progress_bar()
    with seeded(3):
        ResNetForImageClassification(config).save_pretrained(folder)
    return folder


def _timm(name: str, **options: object) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=3, **options)


def _swin() -> nn.Module:
    return models.SwinTransformer([4, 4], 8, depths=[1, 2], num_heads=[2, 2], window_size=[4, 4], num_classes=3)


# name -> how it is made, what its output means, the layer that should be recommended
ZOO: dict[str, tuple[Callable[[], nn.Module], Output, str]] = {
    "vit (timm)": (lambda: _timm("vit_tiny_patch16_224", img_size=32, depth=2), "classes", "blocks.1"),
    "convnext (timm)": (lambda: _timm("convnext_atto", depths=(1, 1, 1, 1)), "classes", "stages.3.blocks.0"),
    "resnet (timm)": (lambda: _timm("resnet10t"), "classes", "layer4.0.add"),
    "swin (torchvision)": (_swin, "classes", "features.3.1"),
    "one logit": (lambda: SmallNet(1), "binary", "norm"),
    "three labels": (lambda: SmallNet(3), "label", "norm"),
    "one channel": (lambda: SmallNet(3, channels=1), "classes", "norm"),
}


def make(name: str) -> tuple[nn.Module, Tensor, Output, str]:
    """Return a model in eval mode, a batch of pictures, what its output means, and its layer."""
    build, output, layer = ZOO[name]
    with seeded(0) as generator:
        model = build().eval()
    return model, pictures(1 if name == "one channel" else 3, generator), output, layer


def pictures(channels: int = 3, generator: torch.Generator | None = None) -> Tensor:
    generator = generator or torch.Generator().manual_seed(0)
    return torch.randn(4, channels, 32, 32, generator=generator)


def turned(net: nn.Module, x: Tensor) -> Tensor:
    """Turn the axes there and back in every spelling."""
    x = net.whole(net.conv(x))
    x = net.gate(x.mean((2, 3)))[:, :, None, None] * x  # mul
    x = torch.permute(x, dims=(0, 2, 3, 1)).relu()  # relu: last
    x = x.transpose(-1, 2).transpose(1, 2) + 1  # add: first
    x = net.norm(x.permute(0, 2, 3, 1)) + 1  # add_1: last
    return net.fc(x.mean((1, 2)))


def windows(net: nn.Module, x: Tensor) -> Tensor:
    """Cut maps into windows and put them together again, as timm's Swin does."""
    x = net.mix(net.conv(x).permute(0, 2, 3, 1))
    x = x.view(-1, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5)
    x = x.reshape(-1, 2, 2, 4) * 2  # mul: windows along the first axis
    x = x.view(-1, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, 4)  # reshape_1: last
    x = net.rest(x).unflatten(1, (4, 4)) + 1  # add: last
    return net.fc(x.mean((1, 2)))


def columns(net: nn.Module, x: Tensor) -> Tensor:
    """Put positions in one row: channels before them until the transpose."""
    x = net.narrow(net.flat(net.conv(x)) + net.conv(x).flatten(start_dim=-2))
    x = torch.cat([x, x], dim=2).transpose(1, 2) + 1
    return net.fc(x).mean(1)


def branching(net: nn.Module, x: Tensor) -> Tensor:
    """Branch by the images' own numbers, which no tracer can follow."""
    if x.sum() > 1e9:
        return x
    x = net.inner(x)
    return net.fc(x.mean((1, 2)) if x.shape[-1] == 8 else x.mean((2, 3)))


def _block() -> nn.Module:
    convolutions = {name: nn.Conv2d(4, 4, 3, padding=1) for name in ("conv1", "conv2")}

    def run(net: nn.Module, x: Tensor) -> Tensor:
        return net.relu(net.bn(net.conv2(net.relu(net.conv1(x)))) + x)

    return Wired(run, **convolutions, bn=nn.BatchNorm2d(4), relu=nn.ReLU(inplace=True))


def untraceable(net: nn.Module, x: Tensor) -> Tensor:
    """Run a small residual network behind a branch that depends on the images."""
    if not net.is_traceable and x.sum() > 1e9:
        return x
    x = net.block2(net.block1(net.early(net.stem(x)))).mean((2, 3)) * net.scale
    return net.fc(net.hidden(net.drop(x)).relu())


def _channels_last() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), Permute([0, 2, 3, 1]), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())


def _vgg() -> nn.Module:
    widths = [4, 4, "M", 4, 4, "M", 4, 4, 4, "M", 4, 4, 4, "M", 8, 8, 8, "M"]  # VGG-16's graph and names
    features = models.vgg.make_layers(widths)
    with torch.device("meta"):  # its own classifier has 120 million weights
        model = models.VGG(features, init_weights=False)
    for place, inputs, outputs in ((0, 8 * 49, 8), (3, 8, 8), (6, 8, 3)):
        model.classifier[place] = nn.Linear(inputs, outputs)
    return model


def _resnet() -> nn.Module:
    with torch.device("meta"):  # an eighth of its width
        model = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 2])
    model.inplanes, model.conv1, model.bn1 = 8, nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
    for number, (width, blocks) in enumerate([(8, 1), (8, 1), (16, 1), (16, 2)], start=1):
        stride = 1 if number == 1 else 2
        setattr(model, f"layer{number}", model._make_layer(models.resnet.BasicBlock, width, blocks, stride))
    model.fc = nn.Linear(16, 3)
    return model


def _efficientnet() -> nn.Module:
    stages = [
        models.efficientnet.MBConvConfig(expand, 3, 2, before, after, 2, width_mult=1, depth_mult=1)
        for expand, before, after in ((1, 8, 8), (4, 8, 16))
    ]
    return models.EfficientNet(stages, dropout=0.2, num_classes=3)


def _maxvit() -> nn.Module:
    sizes = {"stem_channels": 8, "block_channels": [8], "block_layers": [1], "head_dim": 4, "partition_size": 4}
    return models.MaxVit(input_size=(32, 32), **sizes, stochastic_depth_prob=0.1, num_classes=3)


def _vit() -> nn.Module:
    model = models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=5, dropout=0.1, attention_dropout=0.1)
    nn.init.normal_(model.heads.head.weight)  # torchvision starts it at zero: every logit would be equal
    return model


_BLOCKS = [models.convnext.CNBlockConfig(8, 16, 1), models.convnext.CNBlockConfig(16, None, 1)]
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "demo": lambda: DemoNet(4),
    "vgg": _vgg,
    "resnet": _resnet,
    "efficientnet": _efficientnet,
    "vit": _vit,
    "swin": _swin,
    "maxvit": _maxvit,
    "convnext": lambda: models.ConvNeXt(_BLOCKS, num_classes=3),
    "turned": lambda: Wired(
        turned,
        conv=nn.Conv2d(3, 4, 3),
        gate=nn.Linear(4, 4),
        norm=nn.LayerNorm(4),
        whole=nn.LayerNorm((4, 30, 30)),
        fc=nn.Linear(4, 2),
    ),
    "columns": lambda: Wired(
        columns, conv=nn.Conv2d(3, 4, 8, stride=8), flat=nn.Flatten(2), narrow=nn.Conv1d(4, 4, 1), fc=nn.Linear(4, 2)
    ),
    "windows": lambda: Wired(
        windows, conv=nn.Conv2d(3, 4, 8, stride=8), mix=nn.Linear(4, 4), rest=nn.Flatten(1, 2), fc=nn.Linear(4, 2)
    ),
    "untraceable": lambda: Wired(
        untraceable,
        stem=nn.Conv2d(3, 4, 3),
        early=nn.Dropout(0.5),
        block1=_block(),
        block2=_block(),
        is_traceable=False,
        drop=nn.Dropout(0.5),
        hidden=nn.Linear(4, 4),
        fc=nn.Linear(4, 3),
        unused=nn.Linear(2, 2),
        scale=nn.Parameter(torch.full((4,), 1.5)),
    ),
    "branching last": lambda: Wired(branching, inner=_channels_last(), fc=nn.Linear(8, 2)),
    "branching first": lambda: Wired(
        branching, inner=nn.Sequential(*_channels_last(), Permute([0, 3, 1, 2]), nn.Dropout()), fc=nn.Linear(8, 2)
    ),
}


@functools.cache
def network(name: str) -> nn.Module:
    """Return a model in eval mode, made once: a test that changes it takes a copy."""
    with seeded(0):
        return lively(NETWORKS[name]().eval())


def together(cut: Cut, images: Tensor) -> Tensor:
    return cut.head(*cut.phi(*cut.trunk(images)))
