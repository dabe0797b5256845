"""A trunk with folded batch norms and channels last computes what it computed, and nothing given is changed."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from hansfree.models import load_model
from hansfree.models.surgery import fuse_for_inference, make_inplace, split
from tests.activations.samples import lively
from tests.models.zoo import Wired, network

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def modules(trunk, kind):
    called = [trunk.get_submodule(str(node.target)) for node in trunk.graph.nodes if node.op == "call_module"]
    return [module for module in called if isinstance(module, kind)]


def test_a_batch_norm_that_does_more_keeps_its_numbers():
    model = lively(load_model("timm:tf_efficientnet_lite0", classes=2))  # its batch norms are activations too
    trunk = split(model, "conv_head").trunk
    result = fuse_for_inference(trunk)
    with torch.no_grad():
        for got, expected in zip(result(IMAGES), trunk(IMAGES), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def test_norms_are_folded_and_weights_shared_with_nothing():
    trunk = split(network("resnet"), "layer4.1.add").trunk
    assert not modules(fuse_for_inference(trunk), nn.BatchNorm2d)
    assert all(module.weight.is_contiguous() for module in modules(trunk, nn.Conv2d))


def convolution(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def unlike():
    """Return a convolution that two read, a batch norm of each batch's own statistics, and a view."""

    def run(net, images):
        shared = net.shared(images)
        x = net.own(net.last(net.norm(shared) + shared))
        x = x.view(images.shape[0], 4, -1).view(images.shape[0], 4, images.shape[2], images.shape[3])
        return net.head(net.layer(x).mean((2, 3)))

    convolutions = {"shared": convolution(3, 4), "last": convolution(4, 4), "layer": nn.Conv2d(4, 5, 1)}
    norms = {"norm": nn.BatchNorm2d(4), "own": nn.BatchNorm2d(4, track_running_stats=False)}
    return Wired(run, **convolutions, **norms, head=nn.Linear(5, 2))


def twice():
    """Return a convolution that serves two batch norms."""
    shared = convolution(3, 3)
    return nn.Sequential(shared, nn.BatchNorm2d(3), shared, nn.BatchNorm2d(3))


def with_hook():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    return model


@pytest.mark.parametrize(("make", "left"), [(unlike, 2), (twice, 0), (with_hook, 1)])
def test_what_cannot_be_folded_stays(make, left):
    trunk = fx.symbolic_trace(lively(make()).eval())
    result = fuse_for_inference(trunk)
    assert len(modules(result, nn.BatchNorm2d)) == left
    with torch.no_grad():
        torch.testing.assert_close(result(IMAGES), trunk(IMAGES), rtol=1e-4, atol=1e-5)


def test_a_trunk_without_a_graph_is_returned_itself():
    trunk = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    assert fuse_for_inference(trunk) is trunk
    assert make_inplace(trunk) is trunk


def in_place(trunk):
    called = {str(node.target) for node in trunk.graph.nodes if node.op == "call_module"}
    return [name for name in called if getattr(trunk.get_submodule(name), "inplace", False)]


@pytest.mark.parametrize(
    ("name", "layer", "activations"),
    [("demo", "features.10", 3), ("resnet", "layer4.1.add", 10), ("efficientnet", "features.3.1", 11)],
)
def test_what_can_overwrites_and_shares_its_weights(name, layer, activations):
    trunk = split(network(name), layer).trunk
    result = make_inplace(trunk)
    with torch.no_grad():
        assert torch.equal(result(IMAGES.clone())[0], trunk(IMAGES)[0])
    assert (len(in_place(result)), in_place(trunk)) == (activations, [])
    ours = dict(result.named_parameters())
    assert all(ours[key] is parameter for key, parameter in trunk.named_parameters())


def test_what_is_read_again_is_not_overwritten():
    def run(net, images):
        x = net.relu(images)
        x = net.relu(x) + x
        return net.head(net.last(x + x).mean((2, 3)))

    model = Wired(run, last=nn.Conv2d(3, 4, 1), head=nn.Linear(4, 2), relu=nn.ReLU())
    result, images = make_inplace(split(model.eval(), "last").trunk), IMAGES.clone()
    with torch.no_grad():
        assert torch.equal(result(images)[0], split(model, "last").trunk(IMAGES)[0])
    assert torch.equal(images, IMAGES)
    assert in_place(result) == []
