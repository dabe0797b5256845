"""A head is parted at linear layers: only where weight and bias say all, and nothing else is handed on."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm

from hansfree.models.surgery import HeadParts, split


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(input=self.first(x)).relu())


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def run(parts: HeadParts, x: Tensor) -> Tensor:
    for stage in parts.stages:
        x = stage.module(x)
    return x


def test_plain_ones_are_stages() -> None:
    parts = split(Net(), "first").head_parts()
    assert [stage.path for stage in parts.stages] == ["second", None, "third"]
    assert parts.entry == "second"
    assert not parts.is_linear
    torch.testing.assert_close(run(parts, X), parts.whole(X))


class Skipping(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x)).relu()
        return self.third(x) + x[:, :2]


def test_one_that_something_passes_by_is_none() -> None:
    parts = split(Skipping(), "first").head_parts()
    assert [stage.path for stage in parts.stages] == ["second", None]
    torch.testing.assert_close(run(parts, X), parts.whole(X))


def test_tied_weights_are_left_whole() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    model[2].weight = model[1].weight
    parts = split(model, "0").head_parts()
    assert [stage.path for stage in parts.stages] == [None]


def test_a_single_one_is_all() -> None:
    parts = split(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), "0").head_parts()
    assert parts.is_linear
    assert parts.entry == "1"


def normed(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the old one, which works by a hook
        spectral_norm(layer)


def replaced(layer: nn.Module) -> None:
    layer.forward = lambda input: 2 * input[:, :3]  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.register_forward_hook(lambda _m, _a, output: 2 * output),
        lambda layer: layer.register_forward_pre_hook(lambda _m, args, kwargs: (args, kwargs), with_kwargs=True),
        normed,
        parametrizations.weight_norm,
        replaced,
    ],
)
def test_one_that_does_more_is_not(change: Any) -> None:
    model = Net()
    change(model.second)
    parts = split(model, "first").head_parts()
    assert parts.entry is None
    assert [stage.path for stage in parts.stages] == [None, "third"]
    torch.testing.assert_close(run(parts, X), parts.whole(X))
