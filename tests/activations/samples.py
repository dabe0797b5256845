"""Small models and pictures for the tests of the cache."""

from __future__ import annotations

import copy
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hansfree._internal.hashing import seeded
from hansfree.data.examples import Example


class Pictures(Dataset[Any]):
    """Random pictures, each the same whenever it is read; ``reads`` counts how often that was, in this process."""

    def __init__(
        self,
        n: int,
        *,
        size: int = 16,
        seed: int = 0,
        kind: Literal["example", "triple", "pair"] = "example",
        stall_at: int | None = None,
        fail_at: int | None = None,
    ) -> None:
        self.n, self.size, self.seed, self.kind = n, size, seed, kind
        self.stall_at, self.fail_at = stall_at, fail_at
        self.reads: Counter[int] = Counter()
        self.fingerprint = f"Pictures({n}, {size}, {seed}, {kind})"

    def __len__(self) -> int:
        return self.n

    def image(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(100_000 * self.seed + index)
        return torch.randn(3, self.size, self.size, generator=generator)

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        if index == self.stall_at:
            time.sleep(120)  # until the test kills this process
        if index == self.fail_at:
            raise OSError("the disk is gone")
        image, label, has_artifact = self.image(index), index * 7 % 4, index % 3 == 0
        if self.kind == "pair":
            return image, label
        if self.kind == "triple":
            return image, label, has_artifact
        mask = torch.zeros(self.size, self.size, dtype=torch.bool)
        return Example(image, label, has_artifact, mask, 1000 + 2 * index)


class Wired(nn.Module):
    """Modules by name, and a function of the model and its input that runs them."""

    def __init__(self, run: Callable[[nn.Module, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.register_buffer(name, part) if type(part) is Tensor else setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def small_net() -> nn.Module:
    """Return four strided convolutions, mean pooling and a linear head, the same whenever it is called."""
    with seeded(0):
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 8), (8, 16), (16, 16), (16, 16)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        parts = {"features": nn.Sequential(*layers), "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
        return lively(nn.Sequential(OrderedDict(**parts, classifier=nn.Linear(16, 4))))


def _branching(net: nn.Module, images: Tensor) -> Tensor:
    if images.sum() > 1e9:
        return images
    maps = net.stem(images) * net.factor
    gate = net.inner["fc"](maps.mean((2, 3))).sigmoid()
    return net.fc(net.norm(maps * gate[:, :, None, None]).relu().mean((2, 3)))


def branching() -> nn.Module:
    """Return a network that cannot be traced; its trunk has an ``fc`` of its own inside."""
    with seeded(3):
        parts = {"inner": nn.ModuleDict({"fc": nn.Linear(6, 6)}), "norm": nn.BatchNorm2d(6), "fc": nn.Linear(6, 4)}
        return lively(Wired(_branching, stem=nn.Conv2d(3, 6, 3, stride=2), **parts, factor=1.5))


def _skipping(net: nn.Module, images: Tensor) -> Tensor:
    stem = net.stem(images)
    sides = [side(stem) for side in net.sides]
    total = net.layer(stem).relu()
    for side in sides:
        total = (total + side) / 2
    return net.fc(total.mean((2, 3)))


def many_skips() -> nn.Module:
    """Return a network with more than ten tensors that run beside the layer, each of them with another weight."""
    with seeded(0):
        sides = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(12))
        return Wired(
            _skipping, stem=nn.Conv2d(3, 4, 3, stride=2), layer=nn.Conv2d(4, 4, 1), sides=sides, fc=nn.Linear(4, 3)
        )


def lively(model: nn.Module) -> nn.Module:
    """Give every batch norm statistics and weights other than 0 and 1."""
    generator = torch.Generator().manual_seed(5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for name, tensor in {**dict(module.named_buffers()), **dict(module.named_parameters())}.items():
                if name in ("running_mean", "bias"):
                    tensor.data.normal_(0, 0.3, generator=generator)
                elif name != "num_batches_tracked":
                    tensor.data.uniform_(0.5, 2, generator=generator)
    return model


def hooked(model: nn.Module, module: str, batches: list[Tensor]) -> Tensor:
    """Return the output of a module for all images, the plain way."""
    own, outputs = copy.deepcopy(model).eval(), []
    # Cloned, because an in-place ReLU that follows overwrites it.
    own.get_submodule(module).register_forward_hook(lambda _m, _a, output: outputs.append(output.clone()))
    with torch.no_grad():
        for images in batches:
            own(images)
    return torch.cat(outputs)


def batches_of(data: Pictures, size: int) -> list[Tensor]:
    return list(torch.stack([data.image(i) for i in range(len(data))]).split(size))


def state_of(model: nn.Module) -> list[object]:
    """Return everything that working with a model could change in it."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    facts: list[object] = [(name, one.sum().item(), one.requires_grad, one.grad) for name, one in tensors]
    for name, module in model.named_modules():
        hooks = len(module._forward_hooks), len(module._forward_pre_hooks)
        facts.append((name, type(module), module.training, hooks, sorted(vars(module)), getattr(module, "inplace", 0)))
    return facts
