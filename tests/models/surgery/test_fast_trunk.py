"""A trunk with folded batch norms and channels last computes what it computed, and nothing given is changed."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import fuse_for_inference, make_inplace, split
from hansfree.models.surgery.fast_trunk import add_into

IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def modules(trunk, kind):
    called = [trunk.get_submodule(str(node.target)) for node in trunk.graph.nodes if node.op == "call_module"]
    return [module for module in called if isinstance(module, kind)]


def settled(model):
    """Give batch norms statistics and weights that are not those of the start."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            for name in tensors.keys() & {"running_mean", "bias"}:
                tensors[name].data = torch.randn(tensors[name].shape, generator=generator) / 3
            for name in tensors.keys() & {"running_var", "weight"}:
                tensors[name].data = torch.rand(tensors[name].shape, generator=generator) + 0.5
    return model.eval()


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"vgg16"}))  # vgg16_pooled has the same trunk
def test_every_architecture_keeps_its_numbers(name):
    trunk = split(settled(build_model(name, classes=2)), ARCHITECTURES[name].layer).trunk
    state = {key: tensor.clone() for key, tensor in trunk.state_dict().items()}
    result = fuse_for_inference(trunk)
    with torch.no_grad():
        for got, expected in zip(result(IMAGES), trunk(IMAGES), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    assert all(torch.equal(tensor, state[key]) for key, tensor in trunk.state_dict().items())
    assert all(module.weight.is_contiguous() for module in modules(trunk, nn.Conv2d))


class Unlike(nn.Module):
    """A convolution that two read, a batch norm of each batch's own statistics, and a view."""

    def __init__(self):
        super().__init__()
        self.shared, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.own = nn.BatchNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False)
        self.layer, self.head = nn.Conv2d(4, 5, 1), nn.Linear(5, 2)

    def forward(self, images):
        shared = self.shared(images)
        x = self.own(self.last(self.norm(shared) + shared))
        x = x.view(images.shape[0], 4, -1).view(images.shape[0], 4, images.shape[2], images.shape[3])
        return self.head(self.layer(x).mean((2, 3)))


def test_what_cannot_be_folded_stays():
    trunk = fx.symbolic_trace(settled(Unlike()))
    result = fuse_for_inference(trunk)
    assert len(modules(result, nn.BatchNorm2d)) == 2
    with torch.no_grad():
        torch.testing.assert_close(result(IMAGES), trunk(IMAGES), rtol=1e-4, atol=1e-5)


def test_a_convolution_that_serves_twice_is_folded_for_each_norm():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(3, 3, 3, padding=1)
            self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, images):
            return self.second(self.convolution(self.first(self.convolution(images))))

    trunk = fx.symbolic_trace(settled(Twice()))
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(trunk)(IMAGES), trunk(IMAGES), rtol=1e-4, atol=1e-5)


def test_a_convolution_with_a_hook_is_left_alone():
    model = settled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    trunk = fx.symbolic_trace(model)
    trunk.get_submodule("0").register_forward_hook(lambda module, inputs, output: output * 2)
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(trunk)(IMAGES), trunk(IMAGES))


def test_a_trunk_without_a_graph_is_returned_itself():
    trunk = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    assert fuse_for_inference(trunk) is trunk
    assert make_inplace(trunk) is trunk


SMALL_IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def in_place(trunk):
    called = {str(node.target) for node in trunk.graph.nodes if node.op == "call_module"}
    return [name for name in called if getattr(trunk.get_submodule(name), "inplace", False)]


def sums_in_place(trunk):
    return sum(node.target is add_into for node in trunk.graph.nodes)


@pytest.mark.parametrize(
    ("name", "activations", "sums"), [("demo", 3, 0), ("resnet18", 16, 8), ("efficientnet_b0", 48, 0)]
)
def test_the_numbers_stay_and_what_can_overwrites(name, activations, sums):
    # efficientnet_b0: stochastic depth, which hands on its input, stands before every sum
    trunk = split(build_model(name, classes=2).eval(), ARCHITECTURES[name].layer).trunk
    with torch.no_grad():
        expected = trunk(SMALL_IMAGES)
        result = make_inplace(trunk)
        for got, wanted in zip(result(SMALL_IMAGES.clone()), expected, strict=True):
            assert torch.equal(got, wanted)
        assert torch.equal(trunk(SMALL_IMAGES)[0], expected[0])
    assert (len(in_place(result)), sums_in_place(result)) == (activations, sums)
    assert (in_place(trunk), sums_in_place(trunk)) == ([], 0)
    ours = dict(result.named_parameters())
    assert all(ours[key] is parameter for key, parameter in trunk.named_parameters())


class Sums(nn.Module):
    """Sums of many kinds: with a number, a size, a smaller tensor, itself, and one that is read again; and ReLUs."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(3, 4, 1)
        self.head, self.relu = nn.Linear(4, 2), nn.ReLU()

    def forward(self, images):
        x = self.first(self.relu(images)) + images.size(2)
        x = self.relu(x) + x
        small = self.second(images).mean((2, 3), keepdim=True)
        x = self.third(x) + small + 1
        again = self.second(x)
        x = again + self.first(images) + again
        return self.head(self.last(x + x).mean((2, 3)))


def test_sums_of_every_kind_keep_their_numbers():
    trunk = split(Sums().eval(), "last").trunk
    result = make_inplace(trunk)
    images = SMALL_IMAGES.clone()
    with torch.no_grad():
        assert torch.equal(result(images)[0], trunk(SMALL_IMAGES)[0])
    assert torch.equal(images, SMALL_IMAGES)
    assert sums_in_place(result) > 0
    assert in_place(result) == []
