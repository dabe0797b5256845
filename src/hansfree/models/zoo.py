"""Architectures by name, with the layer to correct at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from hansfree._internal.hashing import seeded
from hansfree.errors import OptionError, nearest
from hansfree.models.weights import fill_with_weights, read_weights


@dataclass(frozen=True)
class Architecture:
    """How a model is built, and what the paper's recipe says about it: the last layer before its activation, rates."""

    build: Callable[[int], nn.Module]  # from the number of classes, with fresh weights
    layer: str
    last: str  # path of the last linear layer, one row per class
    optimizer: Literal["sgd", "adam"]
    learning_rate: float  # of training; correction has a rate of its own
    head_rate: float = 3e-3  # Adam's, where only what follows the layer is trained, from fresh weights
    has_pretrained: bool = True  # whether torchvision has weights of it


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


ARCHITECTURES: dict[str, Architecture] = {
    "demo": Architecture(DemoNet, "features.10", "classifier", "sgd", 0.005, has_pretrained=False),
    "vgg16": Architecture(_torchvision("vgg16"), "features.28", "classifier.6", "sgd", 0.005, head_rate=1e-4),
    "resnet18": Architecture(_torchvision("resnet18"), "layer4.1.add", "fc", "sgd", 0.005),
    "efficientnet_b0": Architecture(_torchvision("efficientnet_b0"), "features.8.1", "classifier.1", "adam", 0.001),
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
        weights: A file with all weights of the model (``.safetensors``, ``.pt``, ``.pth``).

    Examples:
        >>> list(build_model("demo", classes=4).state_dict())[-1]
        'classifier.bias'
    """
    known = architecture_named(name)
    tensors = None if weights is None else read_weights(Path(weights))  # first: a wrong path should not take seconds
    with seeded(seed):
        model = known.build(classes)
    if tensors is not None:
        fill_with_weights(model, tensors, source=f"{str(weights)!r}")
    return model
