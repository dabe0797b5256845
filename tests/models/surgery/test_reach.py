"""What the marked pixels reach is all that is computed, and the numbers are those of the whole plane."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import Linearised, exact_forward_mode, folded, split
from hansfree.models.surgery.reach import box_around

EXACT = {"rtol": 1e-9, "atol": 1e-11}
SIZE = (23, 29)  # odd, and not square


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def marked(*boxes, size=SIZE):
    """Return a mask for each image, all but its box empty."""
    masks = torch.zeros(len(boxes), 1, *size, dtype=torch.bool)
    for mask, (rows, columns) in zip(masks, boxes):
        mask[:, slice(*rows), slice(*columns)] = True
    return masks


MASKS = {
    "top left": marked(((0, 3), (0, 4)), ((0, 1), (0, 1))),
    "top right": marked(((0, 2), (25, 29)), ((1, 3), (28, 29))),
    "bottom left": marked(((20, 23), (0, 4)), ((22, 23), (0, 9))),
    "bottom right": marked(((21, 23), (25, 29)), ((21, 22), (20, 29))),
    "middle": marked(((10, 13), (12, 17)), ((9, 12), (14, 15))),
    "one pixel": marked(((11, 12), (15, 16)), ((0, 0), (0, 0))),
    "a line": marked(((8, 9), (0, 29)), ((0, 0), (0, 0))),
    "opposite corners": marked(((0, 3), (0, 3)), ((20, 23), (26, 29))),
    "whole": marked(((0, 23), (0, 29)), ((0, 23), (0, 29))),
    "nothing": marked(((0, 0), (0, 0)), ((0, 0), (0, 0))),
}


class Squeezed(nn.Module):
    """Every position is multiplied by a mean over all of them."""

    def __init__(self):
        super().__init__()
        self.conv, self.gate, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3)

    def forward(self, x):
        x = functional.silu(self.conv(x))
        return self.last(x * self.gate(functional.adaptive_avg_pool2d(x, 1)).sigmoid())


class Branches(nn.Module):
    """Sums, products and joints of planes with boxes of different sizes; a scale and a shift of their own."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(3, 4, 5, padding=2), nn.Conv2d(3, 4, 1)
        self.norm, self.joined = nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, stride=2)
        self.shift = nn.Parameter(noise(4, 1, 1, seed=5))

    def forward(self, x):
        wide, narrow = self.wide(x), self.narrow(x)
        x = torch.cat([functional.relu(wide + narrow), wide * narrow * 0.5], 1)
        return self.joined(functional.gelu(self.norm(x))) + self.shift


class Stacked(nn.Module):
    """Two planes, one below the other."""

    def forward(self, x):
        return torch.cat([x, 2 * x], 2)


class Curved(nn.Conv2d):
    def forward(self, images):
        return super().forward(images).tanh()


def conv(*args, **options):
    return nn.Conv2d(*args, **options)


NETS = {
    "plain": lambda: [
        conv(3, 4, 3, padding=1),
        nn.ReLU(),
        conv(4, 4, 3),
        nn.SiLU(),
        conv(4, 2, (1, 3), padding=(0, 1)),
    ],
    "strided": lambda: [conv(3, 4, 7, stride=2, padding=3), nn.ReLU(), conv(4, 4, 1, stride=2), conv(4, 4, 2)],
    "leaping": lambda: [conv(3, 4, 1, stride=4), nn.ReLU(), conv(4, 4, 2, stride=3)],
    "dilated and grouped": lambda: [conv(3, 6, 3, dilation=2, padding=1, groups=3), nn.GELU(), conv(6, 4, 3, groups=2)],
    "max pooling": lambda: [conv(3, 4, 3, padding=1), nn.MaxPool2d(3, 2, padding=1), nn.MaxPool2d(2), nn.ReLU6()],
    "average pooling": lambda: [nn.AvgPool2d(2), conv(3, 4, 3, bias=False), nn.AvgPool2d((1, 3), stride=2)],
    "padded averages": lambda: [nn.AvgPool2d(3, 1, padding=1), nn.AvgPool2d(2, ceil_mode=True), conv(3, 4, 3)],
    "rounded up": lambda: [conv(3, 4, 3), nn.MaxPool2d(2, ceil_mode=True), conv(4, 4, 3)],
    "around the corner": lambda: [conv(3, 4, 3, padding=1, padding_mode="circular"), conv(4, 4, 3, padding="same")],
    "a subclass": lambda: [conv(3, 4, 3, padding=1), Curved(4, 4, 3), conv(4, 4, 3)],
    "squeezed": lambda: [Squeezed()],
    "stacked": lambda: [conv(3, 4, 3), Stacked(), conv(4, 4, 3)],
    "branches": lambda: [Branches(), nn.Dropout()],
}


def assert_as_without(parts, images, masks):
    """Compare gradients on the mask and tangents from it with those of whole planes."""
    with exact_forward_mode():
        ours, whole = Linearised(parts, images, within=masks), Linearised(parts, images)
        cotangents = [noise(*out.shape, seed=1).to(out) for out in whole._outputs]
        tangent = noise(*images.shape, seed=2).to(images) * masks
        torch.testing.assert_close(ours._outputs, whole._outputs, **EXACT)
        for _ in range(2):  # what it keeps serves again
            torch.testing.assert_close(ours.pull(cotangents) * masks, whole.pull(cotangents) * masks, **EXACT)
            torch.testing.assert_close(ours.push(tangent), whole.push(tangent), **EXACT)


def traced(modules):
    """Trace a network of modules; they return a tuple, as parts of a model do."""

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(*modules)

        def forward(self, x):
            return (self.net(x),)

    return torch.fx.symbolic_trace(Part().double().eval().requires_grad_(False))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("net", NETS)
def test_numbers_are_those_of_whole_planes(net, mask):
    torch.manual_seed(0)
    assert_as_without([traced(NETS[net]())], noise(2, 3, *SIZE), MASKS[mask])


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.MaxPool2d])
def test_every_window_at_every_place(kernel, kind):
    images = noise(1, 1, 2, 11)
    for stride, padding, dilation in itertools.product((1, 2, 4), (0, 1, 2), (1, 2)):
        if kind is nn.MaxPool2d and 2 * padding > kernel:
            continue  # torch refuses it
        options = {"stride": (1, stride), "padding": (0, padding), "dilation": (1, dilation)}
        window = kind(1, 1, (1, kernel), **options) if kind is nn.Conv2d else kind((1, kernel), **options)
        part = traced([window])
        for start in range(11):
            assert_as_without([part], images, marked(((0, 1), (start, start + 1 + start % 3)), size=(2, 11)))


@pytest.mark.parametrize("name", ["resnet18", "vgg16_pooled", "efficientnet_b0"])
def test_trunks(name):
    torch.manual_seed(0)
    model = build_model(name, classes=2).double().eval()
    cut = split(model, ARCHITECTURES[name].layer)
    for place in (((58, 62), (30, 62)), ((30, 33), (30, 33))):
        masks = marked(place, size=(64, 64))
        assert_as_without([folded(cut.trunk), cut.phi], noise(1, 3, 64, 64), masks)


def test_near_the_image_only_the_box_is_computed(monkeypatch):
    """A convolution of 3 x 3 reads two rows and columns more than it changes."""
    part = traced([nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)])
    images, masks = noise(2, 3, *SIZE), MASKS["middle"]  # a box of 4 x 5
    sizes = []
    forward, back = nn.Conv2d.forward, functional.conv_transpose2d
    monkeypatch.setattr(nn.Conv2d, "forward", lambda self, x: sizes.append(x.shape[-2:]) or forward(self, x))
    monkeypatch.setattr(functional, "conv_transpose2d", lambda x, *rest: sizes.append(x.shape[-2:]) or back(x, *rest))
    with exact_forward_mode():
        ours = Linearised([part], images, within=masks)
        assert sizes == [SIZE, SIZE]
        gradient = ours.pull([torch.ones(2, 4, *SIZE, dtype=torch.float64)])
        assert sizes[2:] == [(8, 9), (6, 7)]
        ours.push(gradient)
    assert sizes[4:] == [(8, 9), (10, 11)]


def test_a_box_around_all_masks_unless_it_is_most_of_the_image():
    assert box_around(MASKS["middle"]) == (range(9, 13), range(12, 17))
    assert box_around(MASKS["one pixel"].double()) == (range(11, 12), range(15, 16))
    assert all(box_around(MASKS[name]) is None for name in ("whole", "opposite corners", "nothing"))
