"""Trunk, phi and head together give the model's numbers, at every kind of layer, and the model is left alone."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.flop_counter import FlopCounterMode

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, OptionError, SplitError
from hansfree.models import adapt, recommend_layer
from hansfree.models.surgery import HeadParts, list_layers, split
from tests.models.zoo import Wired, network, together


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


FC = {"fc.weight", "fc.bias"}


def test_the_parts_do_the_models_work_once() -> None:
    def flops(run: Callable[[Tensor], object]) -> int:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            run(IMAGES)
        return counter.get_total_flops()

    parts = split(network("resnet"), "layer2.0.add")
    assert flops(lambda x: together(parts, x)) == flops(network("resnet"))


@pytest.mark.parametrize(
    ("name", "layer", "options", "trainable"),
    [
        ("resnet", "layer4.1.add", {}, FC),
        ("resnet", "layer4.1.conv1", {}, {"layer4.1.conv2.weight", *FC}),
        ("resnet", "layer4.1.conv2", {"train_norm": True}, {"layer4.1.bn2.weight", "layer4.1.bn2.bias", *FC}),
        ("resnet", "layer3", {"train": "last"}, FC),
        ("demo", "features.7", {}, {"features.9.weight", "classifier.weight", "classifier.bias"}),
        ("vit", "encoder.ln", {}, {"heads.head.weight", "heads.head.bias"}),
    ],
)
def test_what_is_trained(name: str, layer: str, options: dict[str, object], trainable: set[str]) -> None:
    parts = split(network(name), layer, **options)
    assert set(parts.trainable) == trainable
    assert set(parts.head_parameters()) == trainable
    state = network(name).state_dict()
    for key, parameter in parts.head_parameters().items():
        assert torch.equal(parameter, state[key])
        assert parameter.requires_grad
        assert parameter.data_ptr() != state[key].data_ptr()
    others = [p for m in (parts.trunk, parts.phi, parts.head) for n, p in m.named_parameters() if n not in trainable]
    assert not any(parameter.requires_grad for parameter in others)


def test_train_mode_switches_dropout_only() -> None:
    parts = split(network("efficientnet"), "features.2.1.add", train_norm=True)
    kept = parts.phi(*parts.trunk(IMAGES))
    steady = parts.head(*kept)
    parts.train_mode()
    assert not torch.equal(parts.head(*kept), parts.head(*kept))
    before = network("efficientnet").get_buffer("features.3.1.running_mean")
    assert torch.equal(parts.head.get_buffer("features.3.1.running_mean"), before)
    parts.eval_mode()
    assert torch.equal(parts.head(*kept), steady)


def test_dropout_shared_with_the_trunk_stays_off_there() -> None:
    def twice(net: nn.Module, x: Tensor) -> Tensor:
        return net.last(net.drop(net.layer(net.drop(x))))

    def by_flag(net: nn.Module, x: Tensor) -> Tensor:
        return net.last(functional.dropout(net.layer(x), 0.5, training=net.training))

    x = torch.ones(8, 4)
    for run in (twice, by_flag):
        parts = split(two(run, drop=nn.Dropout(0.5)), "layer")
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
    model = copy.deepcopy(network("resnet")).train()
    parts = split(model, "layer4.1.add")
    corrected = parts.model_with({"fc.bias": torch.arange(3.0)}, model)
    assert type(corrected) is type(model)
    assert corrected.training
    assert corrected.state_dict().keys() == model.state_dict().keys()
    changed = [k for k, v in model.state_dict().items() if not torch.equal(v, corrected.state_dict()[k])]
    assert changed == ["fc.bias"]
    assert not any(module._forward_hooks for module in corrected.modules())
    with pytest.raises(SplitError, match=r"'fc\.bais' is not trained after 'layer4\.1\.add'\. Did you mean 'fc\.bias'"):
        parts.model_with({"fc.bais": torch.zeros(3)}, model)
    with pytest.raises(SplitError, match=r"has the shape \(3,\), \(1,\) was given"):
        parts.model_with({"fc.bias": torch.zeros(1)}, model)


@pytest.mark.parametrize("layer", ["block1", "block2.bn", "block2.conv1", "stem", "hidden"])
@pytest.mark.parametrize("options", [{}, {"train": "last"}, {"train_norm": True}])
def test_a_cut_by_hooks_is_that_of_the_graph(
    layer: str, options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    model, same = network("untraceable"), copy.deepcopy(network("untraceable"))
    same.is_traceable = True
    with caplog.at_level(logging.WARNING, logger="hansfree.models.surgery.cut"):
        parts = split(model, layer, example=IMAGES, **options)
    assert "cut by hooks: the same numbers" in caplog.text
    traced = split(same, layer, **options)
    assert (parts.traced, traced.traced) == (False, True)
    assert torch.equal(parts.trunk(IMAGES)[0], traced.trunk(IMAGES)[0])
    assert torch.equal(together(parts, IMAGES), together(traced, IMAGES))
    assert torch.equal(together(parts, IMAGES), model(IMAGES))
    assert set(parts.trainable) == set(traced.trainable)
    assert parts.parameters_after == traced.parameters_after
    frozen = {name for name, parameter in parts.head.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters()} - set(parts.trainable)


def test_parts_cut_by_hooks_take_parameters_and_leave_no_hooks() -> None:
    model = network("untraceable")
    parts = split(model, "block1", example=IMAGES)
    state = {name: value.detach() + 0.1 for name, value in parts.head_parameters().items()}
    corrected = parts.model_with(state, model)
    assert torch.equal(corrected(IMAGES), functional_call(parts.head, state, parts.trunk(IMAGES)))
    with pytest.raises(RuntimeError, match="size"):
        parts.head(torch.zeros(2, 9, 30, 30), IMAGES)
    parts.train_mode()
    assert torch.equal(parts.trunk(IMAGES)[0], parts.trunk(IMAGES)[0]), "dropout before the layer stays off"
    assert not torch.equal(together(parts, IMAGES), together(parts, IMAGES))
    assert len(parts.random) == 1
    for module in (*model.modules(), *parts.trunk.modules(), *parts.head.modules()):
        assert not module._forward_hooks
    with pytest.raises(SplitError, match="called 'hidden' 0 times on these images"):
        split(model, "hidden", example=IMAGES).trunk(IMAGES + 1e9)


@pytest.mark.parametrize(
    ("name", "layer", "error", "sentence"),
    [
        ("untraceable", "block3", LayerNotFoundError, "Did you mean 'block.'.*only modules are layers"),
        ("untraceable", "unused", LayerNotFoundError, "does not call 'unused'"),
        ("untraceable", "block1.relu", AmbiguousLayerError, "calls 'block1.relu' 2 times"),
        ("untraceable", "fc", SplitError, "No trainable parameter of Wired follows 'fc'"),
        ("resnet", "layer4.1.ad", LayerNotFoundError, r"no layer 'layer4\.1\.ad'\. Did you mean 'layer4\.1\.add'\?"),
        ("resnet", "layer4.1.relu", AmbiguousLayerError, r"2 times.*'layer4\.1\.relu_0', 'layer4\.1\.relu_1'"),
        ("resnet", "fc", SplitError, "is the output of ResNet"),
        ("vit", "encoder.layers.encoder_layer_0.self_attention", SplitError, "several tensors"),
        ("vit", "encoder.layers.encoder_layer_0.getitem_1", SplitError, "does not depend on"),
    ],
)
def test_layers_that_cannot_be_cut(name: str, layer: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        split(network(name), layer, example=IMAGES)


def two(run: Callable[[nn.Module, Tensor], Tensor], **others: nn.Module) -> Wired:
    return Wired(run, layer=nn.Linear(4, 4), last=nn.Linear(4, 4), **others)


def plain(net: nn.Module, x: Tensor) -> Tensor:
    return net.last(net.layer(x).relu())


def sets_default_dtype(net: nn.Module, x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    return plain(net, x)


def branches_without_gradient(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return plain(net, x) if x.sum() > 0 else plain(net, x) * 2


def sparse(layout: str) -> nn.Module:
    model = two(plain)
    model.last.weight = nn.Parameter(getattr(model.last.weight.detach(), layout)())
    return model


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(two(plain), {nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: two(sets_default_dtype), OptionError, "sets PyTorch's default dtype to torch.float64"),
        (lambda: two(lambda net, x: plain(net, x).detach()), SplitError, r"Remove detach\(\)"),
        (lambda: two(branches_without_gradient), SplitError, r"Remove detach\(\) and torch.no_grad\(\)"),
        (lambda: sparse("to_sparse"), OptionError, "'last.weight' of Wired is torch.sparse_coo"),
        (lambda: sparse("to_sparse_csr"), OptionError, "'last.weight' of Wired is torch.sparse_csr"),
        (quantized, OptionError, "'layer' of Wired is quantized"),
        (lambda: two(plain).to("meta"), OptionError, "'layer.weight' of Wired is on the meta device"),
    ],
)
def test_models_that_cannot_be_trained(make: Callable[[], nn.Module], error: type[Exception], sentence: str) -> None:
    model, x = make().eval(), torch.ones(2, 4)
    with torch.no_grad(), pytest.raises(error, match=sentence):
        split(model, "layer", example=x)
    if error is OptionError:  # adapting needs no gradient
        with pytest.raises(error, match=sentence):
            adapt(model, x)
        with pytest.raises(error, match=sentence):
            recommend_layer(model, x)
    assert torch.get_default_dtype() == torch.float32


def test_tied_weights_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    with pytest.raises(SplitError, match=r"'2\.weight' of Sequential is also used before '1'"):
        split(model, "1")
    with pytest.raises(OptionError, match="Did you mean 'all'"):
        split(model, "1", train="al")  # type: ignore[arg-type]
    by_hooks = copy.deepcopy(network("untraceable"))
    by_hooks.block2.conv1.weight = by_hooks.block1.conv1.weight
    with pytest.raises(SplitError, match=r"'block1\.conv1\.weight' of Wired is used before and after 'block1'"):
        split(by_hooks, "block1", example=IMAGES)


# In-place operations whose effect is seen elsewhere, as in a pre-activation ResNet; views of it cannot be followed.
IN_PLACE: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "module": lambda net, x: net.relu(x),
    "through dropout": lambda net, x: net.relu(net.drop(x)),
    "functional": lambda net, x: functional.relu(x, inplace=True),
    "method": lambda net, x: x.clamp_(min=0),
    "torch": lambda net, x: torch.relu_(x),
    "view": lambda net, x: net.relu(x.view(-1, 2, 2)).flatten(1),
    "earlier view": lambda net, x: x.view(-1, 4) + net.relu(x),
    "slice": lambda net, x: x[:, 0].zero_()[:, None] + x,
}


@pytest.mark.parametrize("style", IN_PLACE)
def test_later_readers_see_what_was_written_in_place(style: str, caplog: pytest.LogCaptureFixture) -> None:
    def run(net: nn.Module, x: Tensor) -> Tensor:
        kept = net.layer(x)
        return net.last(IN_PLACE[style](net, kept)) + kept.sum(1, keepdim=True)

    model, x = two(run, relu=nn.ReLU(inplace=True), drop=nn.Dropout(0.5)).eval(), torch.randn(5, 4)
    with caplog.at_level(logging.WARNING, logger="hansfree.models.surgery.cut"):
        parts = split(model, "layer", example=x)
    assert torch.equal(together(parts, x), model(x))
    assert torch.equal(parts.trunk(x)[0], model.layer(x))
    assert parts.traced is (style not in ("view", "earlier view", "slice"))
    assert parts.traced is ("cut by hooks" not in caplog.text)


def overwrites(net: nn.Module, x: Tensor) -> Tensor:
    """Augmented assignment overwrites ``kept`` in eager mode; a trace cannot see it."""
    kept = x = net.layer(x)
    x += 1
    return net.last(x) * kept


def fails(net: nn.Module, x: Tensor) -> Tensor:
    """The traced graph is one for tensors of another width."""
    return net.last(net.layer(x).reshape(-1, 5 if isinstance(x, torch.fx.Proxy) else 4))


@pytest.mark.parametrize("run", [overwrites, fails])
def test_a_graph_with_other_numbers_than_the_model_is_not_used(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    model, x = two(run), torch.randn(3, 4)
    parts = split(model, "layer", example=x)
    assert not parts.traced
    assert "does not give the model's numbers" in caplog.text
    torch.testing.assert_close(together(parts, x), model(x))


def test_tracing_drops_no_hooks() -> None:
    inner, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    model = nn.Sequential(nn.Linear(4, 4), inner, nn.Linear(4, 2))
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
@settings(max_examples=30)
def test_any_network_at_any_layer(steps: list[tuple[str, int, int]]) -> None:
    model, x = RandomNetwork(steps).eval(), torch.randn(3, 4)
    for layer in list_layers(model, x):
        if not layer.usable:
            with pytest.raises((SplitError, AmbiguousLayerError)):
                split(model, layer.name)
            continue
        parts = split(model, layer.name, example=x)  # some in-place writes need the hooks
        assert torch.equal(together(parts, x), model(x)), layer.name
        assert tuple(parts.trunk(x)[0].shape[1:]) == layer.shape
        assert parts.parameters_after == layer.parameters_after
        kept = [tensor.clone() for tensor in parts.phi(*parts.trunk(x))]
        with torch.no_grad():
            for parameter in parts.head_parameters().values():
                parameter += 1
        assert all(torch.equal(old, new) for old, new in zip(kept, parts.phi(*parts.trunk(x))))
        assert torch.equal(parts.model_with(parts.head_parameters(), model)(x), together(parts, x))


def mlp(net: nn.Module, x: Tensor) -> Tensor:
    return net.last(net.second(input=net.layer(x)).relu())


def skipping(net: nn.Module, x: Tensor) -> Tensor:
    x = net.second(net.layer(x)).relu()
    return net.last(x) + x


def tied() -> nn.Module:
    model = two(mlp, second=nn.Linear(4, 4))
    model.last.weight = model.second.weight
    return model


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def run(parts: HeadParts, x: Tensor) -> Tensor:
    for stage in parts.stages:
        x = stage.module(x)
    return x


def changed(change: Callable[[nn.Module], object]) -> nn.Module:
    """Return a model with a linear layer that does more than its weights say."""
    model = two(mlp, second=nn.Linear(4, 4))
    change(model.second)
    return model


@pytest.mark.parametrize(
    ("make", "stages"),
    [
        (lambda: two(mlp, second=nn.Linear(4, 4)), ["second", None, "last"]),
        (lambda: two(skipping, second=nn.Linear(4, 4)), ["second", None]),
        (tied, [None]),
        (lambda: two(lambda net, x: net.last(net.layer(x))), ["last"]),
        (lambda: changed(lambda layer: layer.register_forward_hook(lambda _m, _a, output: 2 * output)), [None, "last"]),
        (lambda: changed(parametrizations.weight_norm), [None, "last"]),
    ],
)
def test_stages_of_a_head(make: Callable[[], nn.Module], stages: list[str | None]) -> None:
    parts = split(make(), "layer").head_parts()
    assert [stage.path for stage in parts.stages] == stages
    assert (parts.entry, parts.is_linear) == (stages[0], stages == ["last"])
    torch.testing.assert_close(run(parts, X), parts.whole(X))
