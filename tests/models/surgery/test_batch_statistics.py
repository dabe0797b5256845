"""Batch norms that look at the batch in eval mode are refused, traced or not; all others pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.errors import SplitError
from hansfree.models.surgery import split


class Functional(nn.Module):
    """Batch norm as a call, with the flag by place or by name."""

    def __init__(self, training: bool, *, by_name: bool) -> None:
        super().__init__()
        self.use_batch, self.by_name = training, by_name
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.by_name:
            return functional.batch_norm(x, self.mean, self.var, training=self.use_batch)
        return functional.batch_norm(x, self.mean, self.var, None, None, self.use_batch)


class Net(nn.Module):
    def __init__(self, norm: nn.Module, *, traceable: bool, deep: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), norm, nn.Linear(4, 2)
        self.traceable = traceable
        if deep:
            norm.add_module("inner", nn.Identity())  # with a child the tracer looks inside

    def forward(self, x: Tensor) -> Tensor:
        if not self.traceable and x.sum() > 1e9:
            return x
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


IMAGES = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("traceable", [True, False])
@pytest.mark.parametrize("layer", ["conv", "norm"])
@pytest.mark.parametrize("kind", ["module", "by name", "by place"])
def test_refused(traceable: bool, layer: str, kind: str) -> None:
    norm = (
        nn.BatchNorm2d(4, track_running_stats=False) if kind == "module" else Functional(True, by_name=kind[3] == "n")
    )
    with pytest.raises(SplitError, match="statistics of the batch in eval mode"):
        split(Net(norm, traceable=traceable), layer, example=IMAGES)


@pytest.mark.parametrize("by_name", [True, False])
def test_refused_without_an_example_where_the_graph_shows_it(by_name: bool) -> None:
    with pytest.raises(SplitError, match=r"'norm' of Net normalises by the statistics of the batch"):
        split(Net(nn.BatchNorm2d(4, track_running_stats=False), traceable=True), "conv")
    with pytest.raises(SplitError, match=r"'batch_norm' of Net normalises by the statistics of the batch"):
        split(Net(Functional(True, by_name=by_name), traceable=True, deep=True), "conv")


@pytest.mark.parametrize("traceable", [True, False])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4), Functional(False, by_name=True)])
def test_others_pass(traceable: bool, norm: nn.Module) -> None:
    model = Net(norm, traceable=traceable).eval()
    parts = split(model, "conv", example=IMAGES)
    assert parts.traced is traceable
    torch.testing.assert_close(parts.head(*parts.phi(*parts.trunk(IMAGES))), model(IMAGES))
