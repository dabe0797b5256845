"""Small models for the tests of heatmaps, with weights that leave nothing at zero by accident."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torchvision.models import VGG, get_model
from torchvision.models.vgg import make_layers
from torchvision.ops import StochasticDepth


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def settle(model: nn.Module, *, bias: bool) -> nn.Module:
    """Give every parameter a seeded value and batch norm statistics of its own; without biases, if asked."""
    generator = torch.Generator().manual_seed(7)
    model = model.double().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data = 0.05 * torch.randn(parameter.shape, generator=generator).double() * bias
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = 0.1 * torch.randn(module.num_features, generator=generator).double() * bias
            module.running_var = 0.5 + torch.rand(module.num_features, generator=generator).double()
        elif isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            noise = torch.randn(module.weight.shape, generator=generator).double()
            module.weight.data = noise * (2 / fan_in) ** 0.5
    return model


def small_vgg() -> VGG:
    model = VGG(make_layers([8, "M", 8, "M"], batch_norm=True), num_classes=3, init_weights=False)
    model.classifier = nn.Sequential(nn.Linear(8 * 7 * 7, 16), nn.ReLU(inplace=True), nn.Linear(16, 3))
    return model


def small_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 5, 3),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    )


@cache
def without_biases(name: str) -> nn.Module:
    """Build a model of the paper with seeded weights, batch statistics of real batches, and no bias once merged."""
    with torch.device("meta"):  # VGG-16's classifier has 119 million weights, of which a test needs none
        model = get_model(name, num_classes=3)
        if isinstance(model, VGG):
            model.classifier = nn.Sequential(nn.Linear(512 * 7 * 7, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    model = settle(model.to_empty(device="cpu"), bias=False)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in model.modules():
        if isinstance(module, nn.Dropout | StochasticDepth):
            module.p = 0.0  # they would draw from the global generator
    generator = torch.Generator().manual_seed(3)
    for norm in norms:
        norm.weight.data = 0.5 + torch.rand(norm.num_features, generator=generator).double()
        norm.num_batches_tracked.zero_()
        norm.momentum = None  # the plain mean over the batches
    if norms:
        with torch.no_grad():
            for seed in range(2):
                model.train()(seeded(8, 3, 64, 64, seed=seed))
    for norm in norms:
        norm.bias.data = norm.running_mean * norm.weight.data / (norm.running_var + norm.eps).sqrt()
    return model.eval()
