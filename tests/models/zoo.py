"""Small models of every kind that users bring: random weights, tiny pictures, no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from hansfree._internal.hashing import seeded
from hansfree.models import Output


class SmallNet(nn.Module):
    """A convolution, batch norm, ReLU, mean pooling and a linear layer."""

    def __init__(self, num_classes: int = 3, channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 4, stride=4)
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.ReLU()
        self.fc = nn.Linear(6, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.act(self.norm(self.conv(images))).mean((2, 3)))


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
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer(
        patch_size=[4, 4], embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=[4, 4], num_classes=3
    )


# name -> how it is made, what its output means, the layer that should be recommended
ZOO: dict[str, tuple[Callable[[], nn.Module], Output, str]] = {
    "vit (timm)": (lambda: _timm("vit_tiny_patch16_224", img_size=32, depth=2), "classes", "blocks.1"),
    "convnext (timm)": (lambda: _timm("convnext_atto", depths=(1, 1, 1, 1)), "classes", "stages.3.blocks.0"),
    "resnet (timm)": (lambda: _timm("resnet10t"), "classes", "layer4.0.add"),
    "swin (torchvision)": (_swin, "classes", "features.3.0"),
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
