"""Trunk, phi and head together give the model's numbers, at every kind of layer, and the model is left alone."""

from __future__ import annotations

import copy
import functools
import logging
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn import functional
from torch.nn.utils import parametrizations, spectral_norm
from torch.utils.flop_counter import FlopCounterMode
from torchvision import models

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, OptionError, SplitError
from hansfree.models import DemoNet
from hansfree.models.surgery import Cut, HeadParts, exact_forward_mode, list_layers, split


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def randomised(model: nn.Module) -> nn.Module:
    """Give batch norms statistics of their own, so that eval mode differs from train mode."""
    generator = torch.Generator().manual_seed(7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.bias.data):
                tensor.normal_(generator=generator)
            for tensor in (module.running_var, module.weight.data):
                tensor.uniform_(0.5, 2.0, generator=generator)
    return model.eval()


def vit(**options: float) -> nn.Module:
    model = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5, **options
    )
    nn.init.normal_(model.heads.head.weight)  # torchvision starts it at zero: every logit would be equal
    return model


def vgg16() -> nn.Module:
    """VGG-16 with 64 instead of 4096 hidden units: the same graph and names with a ninth of the parameters."""
    model = models.VGG(models.vgg.make_layers(models.vgg.cfgs["D"]), num_classes=6, init_weights=False)
    model.classifier[0], model.classifier[3], model.classifier[6] = (
        nn.Linear(512 * 7 * 7, 64),
        nn.Linear(64, 64),
        nn.Linear(64, 6),
    )
    return model


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "vgg16": vgg16,
    "resnet18": lambda: models.resnet18(num_classes=6),
    "efficientnet_b0": lambda: models.efficientnet_b0(num_classes=6),
    "vit": lambda: vit(dropout=0.1, attention_dropout=0.1),
    "demo": lambda: DemoNet(4),
}
LAYERS = {
    "vgg16": "features.28 features.10 classifier.3",
    "resnet18": "layer4.1.add layer4.1.bn2 layer4.0.conv2 layer3 layer2.0.add layer4.1.relu_0 conv1",
    "efficientnet_b0": "features.8.1 features.6.1.add features.6.1.block.2.mul features.5",
    "vit": "encoder.layers.encoder_layer_0 encoder.layers.encoder_layer_1.add conv_proj encoder.ln",
    "demo": "features.0 features.7 features.9 features.10 pool",
}
CASES = [(name, layer) for name, layers in LAYERS.items() for layer in layers.split()]


@functools.cache
def built(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(BUILDERS[name]())


def images(name: str = "", count: int = 2) -> Tensor:
    side = 32 if name in ("vit", "vgg16", "demo") else 64
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def together(parts: Cut, x: Tensor) -> Tensor:
    return parts.head(*parts.phi(*parts.trunk(x)))


def fingerprint(model: nn.Module) -> list[object]:
    """Everything that a split could have changed in the model."""
    facts: list[object] = [(name, tensor.sum().item(), tensor.requires_grad) for name, tensor in _tensors(model)]
    for name, module in model.named_modules():
        hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)
        facts.append((name, type(module), module.training, hooks, getattr(module, "inplace", None)))
    return facts


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


@pytest.mark.parametrize(("name", "layer"), CASES)
@pytest.mark.parametrize("train", ["all", "last"])
def test_parts_give_the_models_numbers(name: str, layer: str, train: str) -> None:
    model, x = built(name), images(name)
    before = fingerprint(model)
    parts = split(model, layer, train=train)
    with torch.no_grad():
        kept = parts.trunk(x)
        cached = [tensor.clone() for tensor in kept]
        assert torch.equal(parts.head(*parts.phi(*kept)), model(x))
    assert parts.traced
    assert all(torch.equal(old, new) for old, new in zip(cached, kept)), "the head overwrote the cache"
    assert all(len(tensor) == len(x) for tensor in kept)
    assert fingerprint(model) == before


@pytest.mark.parametrize("layer", ["layer4.0.conv2", "layer4.1.bn2", "layer2.0.add"])
def test_the_parts_do_the_models_work_once(layer: str) -> None:
    def flops(run: Callable[[Tensor], object]) -> int:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            run(images())
        return counter.get_total_flops()

    parts = split(built("resnet18"), layer)
    assert flops(lambda x: together(parts, x)) == flops(built("resnet18"))


@pytest.mark.parametrize(
    ("name", "layer", "options", "trainable"),
    [
        ("resnet18", "layer4.1.add", {}, {"fc.weight", "fc.bias"}),
        ("resnet18", "layer4.1.conv1", {}, {"layer4.1.conv2.weight", "fc.weight", "fc.bias"}),
        (
            "resnet18",
            "layer4.1.conv2",
            {"train_norm": True},
            {"layer4.1.bn2.weight", "layer4.1.bn2.bias", "fc.weight", "fc.bias"},
        ),
        ("resnet18", "layer3", {"train": "last"}, {"fc.weight", "fc.bias"}),
        ("demo", "features.7", {}, {"features.9.weight", "classifier.weight", "classifier.bias"}),
        ("vit", "encoder.ln", {}, {"heads.head.weight", "heads.head.bias"}),
    ],
)
def test_what_is_trained(name: str, layer: str, options: dict[str, object], trainable: set[str]) -> None:
    parts = split(built(name), layer, **options)
    assert set(parts.trainable) == trainable
    assert set(parts.head_parameters()) == trainable
    state = built(name).state_dict()
    for key, parameter in parts.head_parameters().items():
        assert torch.equal(parameter, state[key])
        assert parameter.requires_grad
        assert parameter.data_ptr() != state[key].data_ptr()
    others = [p for m in (parts.trunk, parts.phi, parts.head) for n, p in m.named_parameters() if n not in trainable]
    assert not any(parameter.requires_grad for parameter in others)


def test_parameters_without_a_module_are_trained_where_they_are_used() -> None:
    after_patches = split(built("vit"), "conv_proj")
    assert {"class_token", "encoder.pos_embedding"} <= set(after_patches.trainable)
    after_tokens = split(built("vit"), "encoder.dropout")
    assert {"class_token", "encoder.pos_embedding"}.isdisjoint(after_tokens.trainable)


def test_train_mode_switches_dropout_only() -> None:
    parts = split(built("efficientnet_b0"), "features.7", train_norm=True)
    kept = parts.phi(*parts.trunk(images()))
    steady = parts.head(*kept)
    parts.train_mode()
    assert not torch.equal(parts.head(*kept), parts.head(*kept))
    before = built("efficientnet_b0").get_buffer("features.8.1.running_mean")
    assert torch.equal(parts.head.get_buffer("features.8.1.running_mean"), before)
    parts.eval_mode()
    assert torch.equal(parts.head(*kept), steady)


def test_dropout_shared_with_the_trunk_stays_off_there() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.drop = nn.Linear(4, 4), nn.Linear(4, 3), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.drop(self.first(self.drop(x))))

    class Functional(Shared):
        def forward(self, x: Tensor) -> Tensor:
            return self.second(functional.dropout(self.first(x), 0.5, training=self.training))

    x = torch.ones(8, 4)
    for model in (Shared(), Functional()):
        parts = split(model, "first")
        assert torch.equal(together(parts, x), together(parts, x))
        parts.train_mode()
        assert torch.equal(parts.trunk(x)[0], parts.trunk(x)[0])
        assert not torch.equal(together(parts, x), together(parts, x))


def test_dropout_before_frozen_layers_belongs_to_phi_when_only_the_last_is_trained() -> None:
    model = nn.Sequential(
        nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2)
    )
    parts = split(model, "0", train="last")
    assert parts.trainable == ("5.weight", "5.bias")
    parts.train_mode()
    kept = parts.trunk(torch.randn(8, 4))
    assert torch.equal(*(parts.phi(*kept)[0] for _ in range(2)))
    assert not torch.equal(*(parts.head(*parts.phi(*kept)) for _ in range(2)))


def test_model_with_replaces_only_what_is_given() -> None:
    model = copy.deepcopy(built("resnet18")).train()
    parts = split(model, "layer4.1.add")
    corrected = parts.model_with({"fc.bias": torch.arange(6.0)}, model)
    assert type(corrected) is type(model)
    assert corrected.training
    assert corrected.state_dict().keys() == model.state_dict().keys()
    changed = [k for k, v in model.state_dict().items() if not torch.equal(v, corrected.state_dict()[k])]
    assert changed == ["fc.bias"]
    assert not any(module._forward_hooks for module in corrected.modules())
    with pytest.raises(SplitError, match=r"'fc\.bais' is not trained after 'layer4\.1\.add'\. Did you mean 'fc\.bias'"):
        parts.model_with({"fc.bais": torch.zeros(6)}, model)
    with pytest.raises(SplitError, match=r"has the shape \(6,\), \(1,\) was given"):
        parts.model_with({"fc.bias": torch.zeros(1)}, model)


@pytest.mark.parametrize(
    ("name", "layer"), [("resnet18", "layer4.0.conv2"), ("demo", "features.7"), ("vit", "conv_proj")]
)
def test_jvp_agrees_with_double_backward(name: str, layer: str) -> None:
    parts = split(copy.deepcopy(built(name)).double(), layer)
    live = tuple(tensor.detach() for tensor in parts.trunk(images(name).double()))
    tangent = torch.randn(live[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    state = {key: value.detach() for key, value in parts.head_parameters().items()}

    def directional(state: dict[str, Tensor]) -> Tensor:
        def run(cut: Tensor) -> Tensor:
            return functional_call(parts.head, state, parts.phi(cut, *live[1:]))

        return jvp(run, (live[0],), (tangent,))[1]

    with exact_forward_mode():
        derivative = directional(state)
        penalty = torch.func.grad(lambda s: directional(s).pow(2).sum())(state)
        cut = live[0].clone().requires_grad_()
        logits = parts.head(*parts.phi(cut, *live[1:]))
        slow = torch.stack(
            [
                (torch.autograd.grad(logit.sum(), cut, create_graph=True)[0] * tangent).flatten(1).sum(1)
                for logit in logits.T
            ]
        ).T
        parameters = parts.head_parameters()
        slow_penalty = torch.autograd.grad(slow.pow(2).sum(), list(parameters.values()), allow_unused=True)
    torch.testing.assert_close(derivative, slow)
    for key, value in zip(parameters, slow_penalty):
        torch.testing.assert_close(penalty[key], torch.zeros_like(penalty[key]) if value is None else value)


@pytest.mark.parametrize(
    ("name", "layer", "error", "sentence"),
    [
        ("resnet18", "layer4.1.ad", LayerNotFoundError, r"no layer 'layer4\.1\.ad'\. Did you mean 'layer4\.1\.add'\?"),
        ("resnet18", "layer4.1.relu", AmbiguousLayerError, r"2 times.*'layer4\.1\.relu_0', 'layer4\.1\.relu_1'"),
        ("resnet18", "fc", SplitError, "is the output of ResNet"),
        ("vit", "encoder.layers.encoder_layer_0.self_attention", SplitError, "several tensors"),
        ("vit", "encoder.layers.encoder_layer_0.getitem_1", SplitError, "does not depend on"),
    ],
)
def test_layers_that_cannot_be_cut(name: str, layer: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        split(built(name), layer)


def test_tied_weights_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    with pytest.raises(SplitError, match=r"'2\.weight' of Sequential is also used before '1'"):
        split(model, "1")
    with pytest.raises(OptionError, match="Did you mean 'all'"):
        split(model, "1", train="al")  # type: ignore[arg-type]


class InPlace(nn.Module):
    """In-place operations whose effect is seen elsewhere, as in a pre-activation ResNet."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style
        self.first, self.second, self.relu = nn.Linear(6, 6), nn.Linear(6, 3), nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        kept = x = self.first(x)
        if self.style == "module":
            x = self.relu(x)
        elif self.style == "through dropout":
            x = self.relu(self.drop(x))
        elif self.style == "functional":
            x = functional.relu(x, inplace=True)
        elif self.style == "method":
            x = x.clamp_(min=0)
        elif self.style == "torch":
            x = torch.relu_(x)
        elif self.style == "view":
            x = self.relu(x.view(-1, 2, 3)).flatten(1)
        elif self.style == "earlier view":
            kept = x.view(-1, 6)
            x = self.relu(x)
        elif self.style == "slice":
            x[:, 0] = 0
        return self.second(x) + kept.sum(1, keepdim=True)


@pytest.mark.parametrize("style", ["module", "through dropout", "functional", "method", "torch"])
def test_later_readers_see_what_was_written_in_place(style: str) -> None:
    model, x = InPlace(style).eval(), torch.randn(5, 6)
    parts = split(model, "first")
    kept = parts.trunk(x)
    assert torch.equal(together(parts, x), model(x))
    assert torch.equal(kept[0], functional.linear(x, model.first.weight, model.first.bias))


@pytest.mark.parametrize("style", ["view", "earlier view", "slice"])
def test_in_place_writes_that_cannot_be_followed_are_cut_by_hooks(style: str, caplog: pytest.LogCaptureFixture) -> None:
    model, x = InPlace(style).eval(), torch.randn(5, 6)
    with pytest.raises(SplitError, match="Give `example`"):
        split(model, "first")
    with caplog.at_level(logging.WARNING, logger="hansfree.models.surgery.cut"):
        parts = split(model, "first", example=x)
    assert not parts.traced
    assert "cut by hooks" in caplog.text
    assert torch.equal(together(parts, x), model(x))


class Sneaky(nn.Module):
    """Augmented assignment overwrites ``kept`` in eager mode; a trace cannot see it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        kept = x = self.first(x)
        x += 1
        return self.second(x) * kept


class Failing(Sneaky):
    """The traced graph is one for tensors of another width."""

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).reshape(-1, 5 if isinstance(x, torch.fx.Proxy) else 4))


@pytest.mark.parametrize("kind", [Sneaky, Failing])
def test_a_graph_with_other_numbers_than_the_model_is_not_used(
    kind: type[nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    model, x = kind(), torch.randn(3, 4)
    parts = split(model, "first", example=x)
    assert not parts.traced
    assert "does not give the model's numbers" in caplog.text
    torch.testing.assert_close(together(parts, x), model(x))


class Doubled:
    """A forward for one instance of a model, which a copy of the model takes along."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, x: Tensor) -> Tensor:
        first, second = self.model.children()
        return second(first(x).relu() * 2)


def test_a_forward_set_on_the_instance_is_respected() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model.__dict__["forward"] = Doubled(model)
    x = torch.randn(3, 4)
    parts = split(model, "relu")
    assert torch.equal(together(parts, x), model(x))
    assert not torch.equal(model(x), model[1](model[0](x)))


def test_tracing_drops_no_hooks() -> None:
    model, x = (
        nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2)),
        torch.ones(2, 4),
    )
    model[0].register_forward_hook(lambda _m, _a, out: out + 1)
    model[1].register_forward_hook(lambda _m, _a, out: out * 2)
    assert torch.equal(together(split(model, "1"), x), model(x))
    model.register_forward_hook(lambda _m, _a, out: -out)
    with pytest.raises(SplitError, match="itself has forward hooks"):
        split(model, "1")
    assert torch.equal(together(split(model, "1", example=x), x), model(x))


class RandomNetwork(nn.Module):
    """Operations on earlier results, chosen by numbers: skips, branches, in-place writes, dead ends."""

    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.steps = steps
        self.linears = nn.ModuleList(nn.Linear(4, 4) for _ in steps)
        self.norm, self.relu, self.drop = nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.5)
        self.norm.running_mean.fill_(0.2)
        self.stem, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        results = [self.stem(x)]
        for linear, (kind, first, second) in zip(self.linears, self.steps):
            a, b = results[first % len(results)], results[second % len(results)]
            if kind == "linear":
                results.append(linear(a))
            elif kind == "add":
                results.append(a + b)
            elif kind == "gate":
                results.append(a * b.sigmoid().view(a.size(0), 4))
            else:
                results.append(getattr(self, kind)(a))
        return self.out(results[-1])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["linear", "add", "gate", "norm", "relu", "drop"]), st.integers(0, 9), st.integers(0, 9)
        ),
        min_size=2,
        max_size=7,
    )
)
@settings(max_examples=30, deadline=None)
def test_any_network_at_any_layer(steps: list[tuple[str, int, int]]) -> None:
    model, x = RandomNetwork(steps).eval(), torch.randn(3, 4)
    for layer in list_layers(model, x):
        if layer.usable:
            parts = split(model, layer.name, example=x)  # some in-place writes need the hooks
            assert torch.equal(together(parts, x), model(x)), layer.name
            kept = [tensor.clone() for tensor in parts.phi(*parts.trunk(x))]
            with torch.no_grad():
                for parameter in parts.head_parameters().values():
                    parameter += 1
            assert all(torch.equal(old, new) for old, new in zip(kept, parts.phi(*parts.trunk(x))))
            assert torch.equal(parts.model_with(parts.head_parameters(), model)(x), together(parts, x))


@pytest.mark.parametrize("spelling", ["mT", "transpose", "values"])
def test_an_attribute_that_is_a_tensor_is_no_size(spelling: str) -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.early, self.layer, self.late = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            source = {"mT": lambda: x.mT, "transpose": lambda: x.transpose(1, 2), "values": lambda: x.max(1).values}
            beside = self.early(source[spelling]())
            return self.late(self.layer(x) + beside.reshape(2, -1, 4)).mean(1)

    model = Mixer().eval()
    parts = split(model, "layer")
    assert parts.trainable == ("late.weight", "late.bias")
    x = torch.randn(2, 4, 4)
    torch.testing.assert_close(together(parts, x), model(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(input=self.first(x)).relu())


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def run(parts: HeadParts, x: Tensor) -> Tensor:
    for stage in parts.stages:
        x = stage.module(x)
    return x


class Skipping(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x)).relu()
        return self.third(x) + x[:, :2]


def tied() -> nn.Module:
    model = Net()
    model.second, model.third = nn.Linear(4, 4), nn.Linear(4, 4)
    model.third.weight = model.second.weight
    return model


@pytest.mark.parametrize(
    ("make", "stages"),
    [
        (Net, ["second", None, "third"]),
        (Skipping, ["second", None]),
        (tied, [None]),
        (lambda: nn.Sequential(OrderedDict(first=nn.Linear(4, 4), last=nn.Linear(4, 2))), ["last"]),
    ],
)
def test_stages_of_a_head(make: Callable[[], nn.Module], stages: list[str | None]) -> None:
    parts = split(make(), "first").head_parts()
    assert [stage.path for stage in parts.stages] == stages
    assert (parts.entry, parts.is_linear) == (stages[0], stages == ["last"])
    torch.testing.assert_close(run(parts, X), parts.whole(X))


def normed(layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the old one, which works by a hook
        spectral_norm(layer)


def replaced(layer: nn.Module) -> None:
    layer.forward = lambda input: 2 * input[:, :3]  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.register_forward_hook(lambda _m, _a, output: 2 * output),
        lambda layer: layer.register_forward_pre_hook(lambda _m, args, kwargs: (args, kwargs), with_kwargs=True),
        normed,
        parametrizations.weight_norm,
        replaced,
    ],
)
def test_one_that_does_more_is_not(change: Any) -> None:
    model = Net()
    change(model.second)
    parts = split(model, "first").head_parts()
    assert parts.entry is None
    assert [stage.path for stage in parts.stages] == [None, "third"]
    torch.testing.assert_close(run(parts, X), parts.whole(X))
