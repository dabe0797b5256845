"""The recommended layer: the paper's for its models, and as it describes them for all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor, nn

from hansfree.errors import SplitError
from hansfree.models import ARCHITECTURES, adapt, load_model
from hansfree.models.layers import feature_layers, recommend_layer
from hansfree.models.surgery import split
from tests.models.zoo import ZOO, Wired, make, network, pictures


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
def test_the_layers_of_the_paper_are_found(name: str) -> None:
    assert recommend_layer(load_model(name, classes=2), pictures()).layer == ARCHITECTURES[name].layer


@pytest.mark.parametrize(("name", "layer"), [("demo", "features.10"), ("vgg", "features.28")])
def test_the_same_in_small(name: str, layer: str) -> None:
    assert recommend_layer(network(name), pictures()).layer == layer


@pytest.mark.parametrize("name", ZOO)
def test_every_kind_of_model(name: str) -> None:
    model, images, output, layer = make(name)
    adapted = adapt(model, images, output=output, label=1 if output == "label" else None)
    found = recommend_layer(adapted, images)
    assert found.layer == layer
    assert split(adapted, layer, example=images).parameters_after > 0
    assert found.reason.endswith("parameters follow.")
    assert layer in [feature.name for feature in feature_layers(adapted, images)]


def test_features_are_each_output_once_without_what_only_passes_them_on() -> None:
    block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3))
    model = nn.Sequential(block, nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5), nn.Linear(5, 2))
    assert [layer.name for layer in feature_layers(model.eval(), pictures())] == ["0.1", "0.4", "4"]


def test_a_model_that_joins_two_heads() -> None:
    def joined(net: nn.Module, x: Tensor) -> Tensor:
        pooled = net.norm(net.conv(x)).relu().mean((2, 3))
        return (net.fc(pooled) + net.second(pooled)) / 2

    found = recommend_layer(wired(joined, second=nn.Linear(6, 3)), pictures())
    assert found.layer == "norm"
    assert "several ways" in found.reason


def wired(run: Callable[[nn.Module, Tensor], Tensor], **others: nn.Module) -> nn.Module:
    modules = {"conv": nn.Conv2d(3, 6, 4, stride=4), "norm": nn.BatchNorm2d(6), "act": nn.ReLU(), "fc": nn.Linear(6, 3)}
    return Wired(run, **modules, **others).eval()


def untraceable(net: nn.Module, x: Tensor) -> Tensor:
    if x.sum() != x.sum():
        raise ValueError("not a number")
    return net.fc(net.act(net.norm(net.conv(x))).mean((2, 3)))


def adds_in_place(net: nn.Module, x: Tensor) -> Tensor:
    """Run a residual block whose sum no module makes, written over the output of one."""
    if x.sum() != x.sum():
        raise ValueError("not a number")
    before = net.act(net.norm(net.conv(x)))
    hidden = net.block(before)
    hidden += before
    return net.fc(net.act2(hidden).mean((2, 3)))


def test_among_modules_the_activation_is_stepped_over_where_a_module_feeds_it() -> None:
    found = recommend_layer(wired(untraceable), pictures())
    assert found.layer == "norm"
    assert "before activation" in found.reason


def test_a_sum_that_was_written_into_an_output_is_not_that_output() -> None:
    found = recommend_layer(wired(adds_in_place, block=nn.Conv2d(6, 6, 1), act2=nn.ReLU()), pictures())
    assert found.layer == "act2", "not `block`, whose output lacks what was added"
    assert "behind an activation" in found.reason


def test_nothing_to_cut() -> None:
    with pytest.raises(SplitError, match="No trainable parameter of Sequential follows any layer"):
        recommend_layer(nn.Sequential(nn.Flatten(), nn.Softplus()).eval(), pictures())
