"""At every kind of layer: the parts give the model's numbers, its layout is found, and modules can be inserted."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from hansfree.activations import collect_activations, cut_at
from hansfree.models.surgery import (
    AxisOrder,
    fuse_for_inference,
    insert_after,
    layer_order,
    layer_orders,
    make_inplace,
    remove_inserted,
    split,
)
from tests.activations.samples import Pictures, state_of
from tests.models.zoo import Shifted, network, together

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))

# By model: the layers that stand as hansfree has them, and those with their channels last.
RIGHT = {
    "demo": "features.0 features.7 features.9 features.10 pool",
    "vgg": "features.28 features.10 classifier.3",
    "resnet": "layer4.1.add layer4.1.bn2 layer4.0.conv2 layer3 layer2.0.add layer4.1.relu_0 layer4.1.relu_1 conv1",
    "efficientnet": "features.3.1 features.2.1.add features.2.1.block.2.mul features.2",
    "vit": "encoder.layers.encoder_layer_0 encoder.layers.encoder_layer_1.add encoder.layers.encoder_layer_0.mlp "
    "conv_proj encoder.ln",
    "swin": "features.0.0 permute",
    "maxvit": "stem blocks.0.layers.0.layers.MBconv blocks.0",
    "convnext": "features.1 features.2.0 features.3.0.block.0 features.3.0.block.6 features.3",
    "turned": "conv whole mul add",
    "columns": "conv_0 transpose add_1",
    "windows": "conv rest",
    "branching first": "inner inner.0",
}
LAST = {
    "swin": "features.0 features.1 features.2 features.3 features.3.0.add features.3.1.norm1 features.3.1.attn "
    "features.3.1.mlp features.3.1.stochastic_depth_1 norm",
    "maxvit": "blocks.0.layers.0.layers.window_attention.add_1 blocks.0.layers.0.layers.grid_attention.attn_layer",
    "convnext": "features.3.0.block.1 features.3.0.block.2 features.3.0.block.4 features.3.0.block.5",
    "turned": "relu add_1",
    "windows": "reshape_1 add",
    "branching last": "inner inner.1 inner.2",
}
CASES: list[tuple[str, str, AxisOrder | None]] = [
    *((name, layer, None) for name, layers in RIGHT.items() for layer in layers.split()),
    *((name, layer, (0, 3, 1, 2)) for name, layers in LAST.items() for layer in layers.split()),
    ("turned", "transpose", (0, 2, 1, 3)),
    *(("columns", layer, (0, 2, 1)) for layer in ("flat", "flatten", "narrow", "cat")),
]
every_layer = pytest.mark.parametrize(("name", "layer", "order"), CASES)


@every_layer
@torch.no_grad()
def test_parts_give_the_models_numbers(name: str, layer: str, order: AxisOrder | None) -> None:
    model, before, seen = network(name), state_of(network(name)), list[Tensor]()
    expected = model(IMAGES)
    for options in ({}, {"train": "last"}, {"train_norm": True}):
        cut = split(model, layer, example=IMAGES, **options)
        live = cut.trunk(IMAGES)
        kept = [tensor.clone() for tensor in live]
        torch.testing.assert_close(
            cut.head(*cut.phi(*live)), expected, rtol=1e-5 if order else 0, atol=1e-6 if order else 0
        )
        assert all(torch.equal(old, new) for old, new in zip(kept, live)), "the head overwrote the cache"
    assert cut.traced is not name.startswith("branching")
    assert cut.order == order == layer_order(model, layer, IMAGES)
    assert all(len(tensor) == len(IMAGES) for tensor in live)
    if layer in dict(model.named_modules()):
        plain = copy.deepcopy(model)
        plain.get_submodule(layer).register_forward_hook(lambda _m, _a, output: seen.append(output.clone()))
        plain(IMAGES)
        torch.testing.assert_close(live[0], seen[0] if order is None else seen[0].permute(order))
    for faster in (fuse_for_inference(cut.trunk), make_inplace(cut.trunk)):
        for got, wanted in zip(faster(IMAGES.clone()), live, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
    assert all(torch.equal(old, new) for old, new in zip(cut.trunk(IMAGES), live)), (
        "the fast trunk changed the given one"
    )
    assert state_of(model) == before


@every_layer
@torch.no_grad()
def test_an_inserted_module_sees_its_own_layout(name: str, layer: str, order: AxisOrder | None) -> None:
    """Through the turn and back it must be one channel, and nothing else, that changes."""
    model, before = network(name), state_of(network(name))
    edited = insert_after(model, layer, Shifted(), order=order)
    assert type(edited) is type(model)
    assert set(edited.state_dict()) == {*model.state_dict(), "hansfree_projection.shift"}
    cut = split(model, layer, example=IMAGES)
    output, *others = cut.trunk(IMAGES)
    expected = cut.head(*cut.phi(Shifted()(output), *others))
    torch.testing.assert_close(edited(IMAGES), expected)
    again = split(edited, layer, example=IMAGES)  # the name stands for the edited output from now on
    torch.testing.assert_close(together(again, IMAGES), expected)
    plain, module = remove_inserted(edited)
    assert torch.equal(plain(IMAGES), model(IMAGES))
    assert not torch.equal(expected, model(IMAGES))
    assert state_of(plain) == before
    assert plain.state_dict().keys() == model.state_dict().keys()
    assert isinstance(module, Shifted)
    assert remove_inserted(plain)[1] is None
    assert state_of(model) == before


def test_the_layouts_of_many_layers_are_seen_in_one_run() -> None:
    orders: dict[str, dict[str, AxisOrder | None]] = {}
    for name, layer, order in CASES:
        orders.setdefault(name, {})[layer] = order
    for name, expected in orders.items():
        assert layer_orders(network(name), list(expected), IMAGES) == expected


@pytest.mark.parametrize(
    ("name", "layer"),
    [("swin", "features.3"), ("columns", "narrow"), ("branching last", "inner"), ("resnet", "layer4.1.bn2")],
)
@torch.no_grad()
def test_the_cache_holds_channels_first_and_is_cut_again_so(name: str, layer: str) -> None:
    model, data = network(name), Pictures(4, size=32)
    activations = collect_activations(model, layer, data)
    images = torch.stack([data[row][0] for row in range(4)])
    cut, live = split(model, layer, example=images), [torch.cat(parts) for parts in zip(*activations.stream())]
    for got, expected in zip(live, cut.trunk(images), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)  # batch norms are folded
    again = cut_at(model, activations)
    assert again.order == activations.order == cut.order
    assert (activations.order is None) == (name == "resnet")
    assert activations.shape == live[0].shape[1:]
    assert activations.pooled.shape == (4, live[0].shape[1 if live[0].ndim == 4 else 2])
    torch.testing.assert_close(again.head(*again.phi(*live)), model(images), rtol=1e-4, atol=1e-5)
