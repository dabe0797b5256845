"""Gradients down and tangents up, against torch's own, and how often the model runs for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import jvp, vjp

from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import Linearised, exact_forward_mode, split
from tests.corrections.examples import CASES

EXACT = {"rtol": 1e-9, "atol": 1e-12}


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Parcels(nn.Module):
    """Tuples, dictionaries, sizes, constants and a subclass of a convolution lie on the way."""

    def __init__(self):
        super().__init__()
        self.halves, self.joined = Halves(), Joined()
        self.curved = Curved(3, 4, 3, padding=1)
        self.shift = nn.Parameter(noise(4, 1, 1, seed=7))
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, images):
        x = self.norm(self.curved(images)) + self.shift + torch.ones(4, 1, 1, dtype=images.dtype)
        first, second = x.chunk(2, dim=1)
        x = torch.cat([first * second.sigmoid(), second], dim=1).reshape(x.shape[0], 4, -1, images.size(3))
        return self.head(self.last(self.joined(self.halves(x))).mean((2, 3)))


class Halves(nn.Module):
    """A leaf of the graph that returns a dictionary, with something in it that is no tensor."""

    def forward(self, x):
        return {"low": x[:, :2], "parts": (x[:, 2:], None), "count": 2}


class Joined(nn.Module):
    def forward(self, parcel):
        return torch.cat([parcel["low"], parcel["parts"][0]], dim=1) * parcel["count"]


class Curved(nn.Conv2d):
    def forward(self, images):
        return super().forward(images).tanh()


def parcels():
    model = Parcels().double()
    model.norm.running_mean.copy_(noise(4, seed=3))
    return model


def build(name):
    if name == "parcels":
        return parcels(), "last", 8
    if name in CASES:
        return CASES[name].model().double(), CASES[name].layer, 8
    return build_model(name, classes=2).double(), ARCHITECTURES[name].layer, 32


@pytest.mark.parametrize("name", ["demo", "resnet18", "efficientnet_b0", "parcels", *CASES])
def test_gradients_and_tangents_are_torchs_own(name):
    model, layer, size = build(name)
    images = noise(2, 3, size, size)
    cut = split(model.eval(), layer, example=images[:1])

    def whole(x):
        return tuple(cut.phi(*cut.trunk(x)))

    with exact_forward_mode():
        outputs, pull = vjp(whole, images)
        cotangents = tuple(noise(*out.shape, seed=1) for out in outputs)
        tangent = noise(*images.shape, seed=2)
        expected = jvp(whole, (images,), (tangent,))[1]
        ours = Linearised([cut.trunk, cut.phi], images)
        for _ in range(2):  # what it keeps serves again
            torch.testing.assert_close(ours.pull(cotangents), pull(cotangents)[0], **EXACT)
            torch.testing.assert_close(ours.push(tangent), expected, **EXACT)
    assert not images.requires_grad


def test_a_tangent_runs_each_convolution_once(monkeypatch):
    cut = split(build_model("resnet18", classes=2).eval(), "layer4.1.add")
    convolutions = sum(isinstance(module, nn.Conv2d) for module in cut.trunk.modules())
    calls = []
    forward = nn.Conv2d.forward
    monkeypatch.setattr(nn.Conv2d, "forward", lambda self, x: calls.append(self) or forward(self, x))
    images = torch.zeros(1, 3, 32, 32)
    with exact_forward_mode():
        ours = Linearised([cut.trunk, cut.phi], images)
        assert len(calls) == convolutions == 20
        gradient = ours.pull([torch.ones(1, 512)])
        assert len(calls) == 20
        ours.push(gradient)
    assert len(calls) == 40


def test_an_output_that_the_images_do_not_reach_has_no_part():
    class Constant(nn.Module):
        def forward(self, images):
            return images.mean((2, 3)), images.new_ones((2, 2))

    images = noise(2, 3, 4, 4)
    with exact_forward_mode():
        ours = Linearised([torch.fx.symbolic_trace(Constant())], images)
        assert torch.equal(
            ours.pull([noise(2, 3), noise(2, 2)]), (noise(2, 3) / 16)[:, :, None, None].expand_as(images)
        )
        mean, constant = ours.push(torch.ones_like(images))
    assert torch.equal(mean, torch.ones(2, 3, dtype=torch.float64))
    assert torch.equal(constant, torch.zeros(2, 2, dtype=torch.float64))
