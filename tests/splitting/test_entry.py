"""A linear layer at the head's start is split off only where weight and bias say all that it does."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm

from hansfree.splitting import split


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(input=self.first(x)).relu())


def test_a_plain_one_is_split_off() -> None:
    parts = split(Net(), "first").head_parts()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert parts.entry == "second"
    torch.testing.assert_close(parts.rest(parts.whole.get_submodule("second")(x)), parts.whole(x))


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
    assert parts.rest is parts.whole
