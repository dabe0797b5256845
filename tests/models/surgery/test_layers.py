"""Layers by name, and modules put behind them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError
from hansfree.models import load_model
from hansfree.models.surgery import Layer, insert_after, list_layers, remove_inserted
from hansfree.models.surgery.tracing import PROJECTION
from tests.models.zoo import Shifted, Wired, hugging_face_folder, network, pictures


def branch(net: nn.Module, x: Tensor) -> Tensor:
    """Stop the tracer; call one module twice, and one never."""
    x = net.relu(net.norm(net.first(x)))
    return net.fc(net.relu(x).mean((2, 3))) if x.sum() > 0 else net.fc(net.relu(x).mean((2, 3))) * 2


def branching() -> nn.Module:
    modules = {"first": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "relu": nn.ReLU(), "fc": nn.Linear(4, 2)}
    return Wired(branch, **modules, unused=nn.Linear(2, 2))


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_resnet_lists_nodes_calls_and_shapes() -> None:
    layers = {layer.name: layer for layer in list_layers(network("resnet"), IMAGES)}
    head = 16 * 3 + 3
    assert layers["layer4.1.add"] == Layer("layer4.1.add", "add", 1, True, head, (16, 1, 1))
    assert layers["layer4.1"] == Layer("layer4.1", "BasicBlock", 1, True, head, (16, 1, 1))
    assert layers["layer4.1.relu"] == Layer("layer4.1.relu", "ReLU", 2, False, 0)
    assert layers["layer4.1.relu_0"].parameters_after == 16 * 16 * 9 + 2 * 16 + head
    names = list(layers)
    assert names.index("layer4.1.relu") == names.index("layer4.1.relu_0") - 1
    assert names.index("layer4.1.bn2") < names.index("layer4.1.add") < names.index("layer4.1.relu_1")


def test_numbering_of_operations_is_per_module() -> None:
    def sums() -> nn.Module:
        return Wired(lambda net, x: net.fc(x + 1) + 2, fc=nn.Linear(3, 3))

    twice = Wired(lambda net, x: net.add(net.a(x)) + net.b(x), a=sums(), b=sums(), add=nn.Identity())
    kinds = {layer.name: layer.kind for layer in list_layers(twice)}
    assert {"a.add", "a.add_1", "b.add", "b.add_1", "add", "add_0"} <= set(kinds)
    assert kinds["add"] == "Identity"
    assert kinds["add_0"] == "add"


@pytest.mark.parametrize(
    ("model", "layer", "error", "sentence"),
    [
        (network("resnet"), "layer4.1.sum", LayerNotFoundError, r"Did you mean '.*'\? All: .*`hansfree\.list_layers\("),
        (network("resnet"), "layer4.1.relu", AmbiguousLayerError, "2 times"),
        (branching(), "nrm", LayerNotFoundError, r"Did you mean 'norm'.*only modules are layers"),
        (insert_after(network("resnet"), "fc", Shifted()), "conv1", SplitError, "already has a 'hansfree_projection'"),
        (Wired(lambda net, x: net.a(x), a=nn.ReLU(), b=nn.ReLU()), "b", LayerNotFoundError, "does not call 'b'"),
    ],
)
def test_layers_that_cannot_be_found(model: nn.Module, layer: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        insert_after(model, layer, Shifted())


def test_modules_of_a_model_that_cannot_be_traced() -> None:
    with pytest.raises(SplitError, match=r"cannot be traced.*Give `example`"):
        list_layers(branching())
    assert list_layers(branching(), IMAGES) == [
        Layer("first", "Conv2d", 1, True, 8 + 10, (4, 30, 30)),
        Layer("norm", "BatchNorm2d", 1, True, 10, (4, 30, 30)),
        Layer("relu", "ReLU", 2, False, 0, (4, 30, 30)),
        Layer("fc", "Linear", 1, False, 0, (2,)),
    ]


@pytest.mark.parametrize("layer", ["layer4.1.add", "layer4.1.bn2"])
def test_copies_of_an_edited_model_are_independent(layer: str) -> None:
    edited = insert_after(network("resnet"), layer, Shifted())
    expected = edited(IMAGES)
    for twin in (copy.deepcopy(edited), pickle.loads(pickle.dumps(edited))):
        assert torch.equal(twin(IMAGES), expected)
        with torch.no_grad():
            twin.fc.bias += 1
            twin.get_submodule(PROJECTION).shift.zero_()
        assert torch.equal(edited(IMAGES), expected)
        assert not torch.allclose(twin(IMAGES), expected)


def test_a_module_inserted_into_a_sequential_runs_once_and_not_on_the_logits():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)).eval()
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    edited = insert_after(model, "0", nn.Tanh())
    torch.testing.assert_close(edited(images), model[1:](torch.tanh(model[0](images))))
    assert list(edited.state_dict()) == list(model.state_dict())


LAYER = "resnet.encoder.stages.1.layers.0.add"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return load_model(f"hf:{hugging_face_folder(tmp_path_factory.mktemp('hf'))}")


@torch.no_grad()
def test_the_output_keeps_its_class_and_the_images_their_name(model: nn.Module) -> None:
    images = pictures()
    before = model(images)
    same = insert_after(model, LAYER, nn.Identity())
    for result in (same(images), same(pixel_values=images), copy.deepcopy(same)(images)):
        assert type(result) is type(before)
        torch.testing.assert_close(result.logits, before.logits)
    edited = insert_after(model, LAYER, Shifted())
    assert not torch.allclose(edited(images).logits, before.logits)
    assert torch.equal(remove_inserted(edited)[0](images).logits, before.logits)
    assert torch.equal(model(images).logits, before.logits)


def test_what_the_graph_does_not_know_is_refused(model: nn.Module) -> None:
    edited = insert_after(model, LAYER, nn.Identity())
    with pytest.raises(TypeError, match="A corrected ResNetForImageClassification takes images only, not labels"):
        edited(pictures(), labels=torch.zeros(4, dtype=torch.long))
