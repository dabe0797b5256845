"""Layers by name, and modules put behind them."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError
from hansfree.models import load_model
from hansfree.models.surgery import Layer, insert_after, list_layers, remove_inserted, split
from hansfree.models.surgery.tracing import PROJECTION
from tests.models.zoo import hugging_face_folder, pictures


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Shift(nn.Module):
    """Add a vector to the channels; its buffer follows the model."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.linspace(-1, 1, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift.reshape(1, -1, *[1] * (x.ndim - 2))


class Branching(nn.Module):
    """Control flow that stops the tracer, one module called twice, one never."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.relu, self.unused = nn.ReLU(), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(x)))
        return self.fc(self.relu(x).mean((2, 3))) if x.sum() > 0 else self.fc(self.relu(x).mean((2, 3))) * 2


@functools.cache
def resnet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.resnet18(num_classes=3).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_resnet_lists_nodes_calls_and_shapes(images: Tensor) -> None:
    layers = {layer.name: layer for layer in list_layers(resnet(), images)}
    head = 512 * 3 + 3
    assert layers["layer4.1.add"] == Layer("layer4.1.add", "add", 1, True, head, (512, 1, 1))
    assert layers["layer4.1"] == Layer("layer4.1", "BasicBlock", 1, True, head, (512, 1, 1))
    assert layers["layer4.1.relu"] == Layer("layer4.1.relu", "ReLU", 2, False, 0)
    assert layers["layer4.1.relu_1"] == Layer("layer4.1.relu_1", "ReLU", 1, True, head, (512, 1, 1))
    assert layers["layer4.1.relu_0"].parameters_after == 512 * 512 * 9 + 2 * 512 + head
    assert layers["layer2.0.bn2"].shape == (128, 4, 4)
    names = list(layers)
    assert names.index("layer4.1.relu") == names.index("layer4.1.relu_0") - 1
    assert names.index("layer4.1.bn2") < names.index("layer4.1.add") < names.index("layer4.1.relu_1")


def test_every_usable_layer_can_be_split_and_no_other(images: Tensor) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5), nn.Dropout(), nn.Linear(5, 2)
    )
    model(images)
    layers = list_layers(model.eval(), images)
    assert [layer.usable for layer in layers] == [True] * 6 + [False]
    for layer in layers:
        if layer.usable:
            parts = split(model, layer.name)
            assert tuple(parts.trunk(images)[0].shape[1:]) == layer.shape
            assert parts.parameters_after == layer.parameters_after
        else:
            with pytest.raises(SplitError):
                split(model, layer.name)


def test_numbering_of_operations_is_per_module() -> None:
    class Sums(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x + 1) + 2

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.add = Sums(), Sums(), nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return self.add(self.a(x)) + self.b(x)

    kinds = {layer.name: layer.kind for layer in list_layers(Twice())}
    assert {"a.add", "a.add_1", "b.add", "b.add_1", "add", "add_0"} <= set(kinds)
    assert kinds["add"] == "Identity"
    assert kinds["add_0"] == "add"


def test_layers_that_cannot_be_found() -> None:
    sentence = r"ResNet has no layer 'layer4\.1\.sum'\. Did you mean '.*'\? `hansfree layers SOURCE --all` lists them\."
    with pytest.raises(LayerNotFoundError, match=sentence):
        insert_after(resnet(), "layer4.1.sum", Shift(512))
    with pytest.raises(LayerNotFoundError, match="does not call '1'"):
        insert_after(Uncalled(), "1", Shift(2))
    with pytest.raises(AmbiguousLayerError, match="2 times"):
        insert_after(resnet(), "layer4.1.relu", Shift(512))
    once = insert_after(resnet(), "layer4.1.add", Shift(512))
    with pytest.raises(SplitError, match="already has a 'hansfree_projection'"):
        insert_after(once, "layer4.1.bn2", Shift(512))


class Uncalled(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 2), nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self[0](x)


def test_modules_of_a_model_that_cannot_be_traced(images: Tensor) -> None:
    with pytest.raises(SplitError, match=r"cannot be traced.*Give `example`"):
        list_layers(Branching())
    assert list_layers(Branching(), images) == [
        Layer("first", "Conv2d", 1, True, 8 + 10, (4, 30, 30)),
        Layer("norm", "BatchNorm2d", 1, True, 10, (4, 30, 30)),
        Layer("relu", "ReLU", 2, False, 0, (4, 30, 30)),
        Layer("fc", "Linear", 1, False, 0, (2,)),
    ]


@pytest.mark.parametrize("layer", ["layer4.1.add", "layer4.1.bn2", "layer3", "layer4.1.relu_1"])
def test_inserted_module_edits_the_layer(layer: str, images: Tensor) -> None:
    model = resnet()
    before = copy.deepcopy(model.state_dict())
    channels = 256 if layer == "layer3" else 512
    edited = insert_after(model, layer, Shift(channels))

    first, *others = split(model, layer).trunk(images)
    parts = split(model, layer)
    expected = parts.head(*parts.phi(Shift(channels)(first), *others))
    torch.testing.assert_close(edited(images), expected)
    assert not torch.allclose(edited(images), model(images))

    assert type(edited) is type(model)
    assert set(edited.state_dict()) == {*before, f"{PROJECTION}.shift"}
    assert "forward" not in model.__dict__
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    plain, module = remove_inserted(edited)
    assert isinstance(module, Shift)
    assert torch.equal(plain(images), model(images))
    assert plain.state_dict().keys() == before.keys()
    assert remove_inserted(plain)[1] is None


@pytest.mark.parametrize("layer", ["layer4.1.add", "layer4.1.bn2", "layer4.1"])
def test_copies_of_an_edited_model_are_independent(layer: str, images: Tensor, tmp_path: Path) -> None:
    edited = insert_after(resnet(), layer, Shift(512))
    expected = edited(images)
    (tmp_path / "model").write_bytes(pickle.dumps(edited))
    for twin in (copy.deepcopy(edited), pickle.loads((tmp_path / "model").read_bytes())):
        assert torch.equal(twin(images), expected)
        with torch.no_grad():
            twin.fc.bias += 1
            twin.get_submodule(PROJECTION).shift.zero_()
            twin.layer4[1].conv2.weight.zero_()
        assert torch.equal(edited(images), expected)
        assert not torch.allclose(twin(images), expected)
    torch.testing.assert_close(edited.to(torch.float64)(images.double()), expected.double(), rtol=1e-4, atol=1e-5)


def test_insertion_into_a_model_that_cannot_be_traced(images: Tensor) -> None:
    model = Branching().eval()
    edited = insert_after(model, "norm", Shift(4))
    seen = []
    edited.relu.register_forward_hook(lambda _m, args, _o: seen.append(args[0]))
    edited(images)
    torch.testing.assert_close(seen[0], Shift(4)(model.norm(model.first(images))))
    parts = split(edited, "norm", example=images)
    assert torch.equal(parts.head(*parts.phi(*parts.trunk(images))), edited(images))
    with pytest.raises(LayerNotFoundError, match=r"Did you mean 'norm'.*only modules are layers"):
        insert_after(model, "nrm", Shift(4))


def test_a_module_inserted_into_a_sequential_runs_once_and_not_on_the_logits():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)).eval()
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    edited = insert_after(model, "0", nn.Tanh())
    torch.testing.assert_close(edited(images), model[1:](torch.tanh(model[0](images))))
    assert list(edited.state_dict()) == list(model.state_dict())


LAYER = "resnet.encoder.stages.1.layers.0.add"


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


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
    edited = insert_after(model, LAYER, Doubled())
    assert not torch.allclose(edited(images).logits, before.logits)
    assert torch.equal(remove_inserted(edited)[0](images).logits, before.logits)
    assert torch.equal(model(images).logits, before.logits)


def test_what_the_graph_does_not_know_is_refused(model: nn.Module) -> None:
    edited = insert_after(model, LAYER, nn.Identity())
    with pytest.raises(TypeError, match="A corrected ResNetForImageClassification takes images only, not labels"):
        edited(pictures(), labels=torch.zeros(4, dtype=torch.long))
