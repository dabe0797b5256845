"""Gradients and tangents from kept patterns are those of the forward pass, which then need not run."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import Linearised, Patterns, exact_forward_mode, folded, split
from tests.models.surgery.test_reach import NETS, Branches, noise, traced

EXACT = {"rtol": 1e-9, "atol": 1e-11}
SIZE = (23, 29)


class Block(nn.Module):
    """A skip connection past a batch norm, and two planes joined."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.down = nn.Conv2d(3, 5, 3, 2, 1), nn.BatchNorm2d(5), nn.Conv2d(3, 5, 1, 2)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)) + self.down(x))
        return torch.cat([x, torch.relu(x[:, 1:])], 1)


def normed():
    block = Block()
    block.norm.running_mean.normal_()
    return [block, nn.AvgPool2d(2), nn.Dropout(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]


def assert_as_linearised(parts, images):
    patterns = Patterns.of(parts)
    with exact_forward_mode():
        whole = Linearised(parts, images)
        cotangents = [noise(*out.shape, seed=1) for out in whole._outputs]
        tangent = noise(*images.shape, seed=2)
        for _ in range(2):  # found, then kept
            ours = patterns.around(range(len(images)), images)
            for _ in range(2):
                torch.testing.assert_close(ours.pull(cotangents), whole.pull(cotangents), **EXACT)
                torch.testing.assert_close(ours.push(tangent), whole.push(tangent), **EXACT)


@pytest.mark.parametrize(
    "net", [*(NETS[name] for name in ("strided", "leaping", "rounded up")), normed], ids=lambda net: net.__name__
)
def test_numbers_are_those_of_the_forward_pass(net):
    torch.manual_seed(0)
    assert_as_linearised([traced([*net(), nn.ReLU()])], noise(3, 3, *SIZE))


def test_windows_that_overlap_and_convolutions_in_groups():
    torch.manual_seed(0)
    grouped = nn.Conv2d(3, 6, 3, stride=(2, 3), dilation=2, padding=1, groups=3)
    assert_as_linearised([traced([grouped, nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)])], noise(2, 3, *SIZE))


@pytest.mark.parametrize("name", ["resnet18", "vgg16_pooled"])
@pytest.mark.parametrize("prepare", [folded, lambda trunk: trunk], ids=["folded", "plain"])
def test_trunks(name, prepare):
    torch.manual_seed(0)
    cut = split(build_model(name, classes=2).double().eval(), ARCHITECTURES[name].layer)
    assert_as_linearised([prepare(cut.trunk), cut.phi], noise(2, 3, 64, 64))


@pytest.mark.parametrize(
    "net",
    [
        *(NETS[name]() for name in ("plain", "around the corner", "a subclass", "squeezed")),
        [Branches()],  # a shift of its own
        [nn.Conv2d(3, 4, 3).train(), nn.SiLU()],
    ],
)
def test_what_is_not_known_to_be_piecewise_linear_is_left_alone(net):
    assert Patterns.of([traced(net)]) is None


def test_hooks_randomness_and_parts_that_are_no_graph_are_left_alone():
    hooked = nn.ReLU()
    hooked.register_forward_hook(lambda module, args, output: 2 * output)
    assert Patterns.of([traced([hooked])]) is None
    random = traced([nn.Dropout()])
    random.net.get_submodule("0").train()
    assert Patterns.of([random]) is None
    assert Patterns.of([traced([nn.ReLU()]), nn.ReLU()]) is None


def test_images_are_known_by_their_rows_and_a_full_store_forgets_nothing_that_it_has(monkeypatch):
    part, images = traced([nn.Conv2d(3, 4, 3), nn.ReLU()]), noise(4, 3, 9, 9)
    seen = []
    forward = nn.Conv2d.forward
    monkeypatch.setattr(nn.Conv2d, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    size = -(-4 * 7 * 7 // 8)
    patterns = Patterns([part], limit=2 * size)
    expected = patterns.around([0, 1, 2, 3], images).pull([torch.ones(4, 4, 7, 7, dtype=torch.float64)])
    for rows, anew in (([1, 0], []), ([3, 1], [1]), ([2, 3], [2])):
        seen.clear()
        ours = patterns.around(rows, images[rows])
        assert seen == anew
        torch.testing.assert_close(ours.pull([torch.ones(2, 4, 7, 7, dtype=torch.float64)]), expected[rows], **EXACT)
