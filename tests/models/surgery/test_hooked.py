"""Models that cannot be traced are cut by hooks, with the same numbers and the same names."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError
from hansfree.models.surgery import Cut, exact_forward_mode, split
from hansfree.models.surgery.hooked import output_edited


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.bn = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.bn(self.conv2(self.relu(self.conv1(x)))) + x)


class Untraceable(nn.Module):
    """A small residual network with a branch that depends on the data."""

    def __init__(self, *, is_traceable: bool = False) -> None:
        super().__init__()
        self.is_traceable = is_traceable
        self.stem, self.early = nn.Conv2d(3, 4, 3), nn.Dropout(0.5)
        self.block1, self.block2 = Block(), Block()
        self.drop, self.hidden, self.fc = nn.Dropout(0.5), nn.Linear(4, 4), nn.Linear(4, 3)
        self.scale, self.unused = nn.Parameter(torch.full((4,), 1.5)), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_traceable and x.sum() > 1e9:
            return x
        x = self.block2(self.block1(self.early(self.stem(x)))).mean((2, 3)) * self.scale
        return self.fc(self.hidden(self.drop(x)).relu())


@pytest.fixture
def model() -> Untraceable:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Untraceable()
    for block in (model.block1, model.block2):
        block.bn.running_mean.fill_(0.3)
        block.bn.running_var.fill_(0.5)
    return model


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def traceable(model: Untraceable) -> Untraceable:
    """Return the same network without the branch that stops the tracer."""
    same = copy.deepcopy(model)
    same.is_traceable = True
    return same


def together(parts: Cut, x: Tensor) -> Tensor:
    return parts.head(*parts.phi(*parts.trunk(x)))


@pytest.mark.parametrize("layer", ["block1", "block2.bn", "block2.conv1", "stem", "hidden"])
@pytest.mark.parametrize("options", [{}, {"train": "last"}, {"train_norm": True}])
def test_same_as_the_traced_split(
    model: Untraceable, images: Tensor, layer: str, options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="hansfree.models.surgery.cut"):
        parts = split(model, layer, example=images, **options)
    assert "cut by hooks: the same numbers" in caplog.text
    traced = split(traceable(model), layer, **options)
    assert (parts.traced, traced.traced) == (False, True)
    assert torch.equal(parts.trunk(images)[0], traced.trunk(images)[0])
    assert torch.equal(together(parts, images), together(traced, images))
    assert torch.equal(together(parts, images), copy.deepcopy(model).eval()(images))
    assert set(parts.trainable) == set(traced.trainable)
    assert parts.parameters_after == traced.parameters_after
    frozen = {name for name, parameter in parts.head.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters()} - set(parts.trainable)


def test_derivatives_and_replaced_parameters(model: Untraceable, images: Tensor) -> None:
    parts, traced = split(model, "block2.bn", example=images), split(traceable(model), "block2.bn")
    state = {name: value.detach() + 0.1 for name, value in parts.head_parameters().items()}
    derivatives = []
    for cut in (parts, traced):
        first, *others = cut.trunk(images)

        def run(first: Tensor, cut: Cut = cut, others: list[Tensor] = others) -> Tensor:
            return functional_call(cut.head, state, cut.phi(first, *others))

        with exact_forward_mode():
            derivatives.append(jvp(run, (first,), (torch.ones_like(first),))[1])
    torch.testing.assert_close(*derivatives)
    assert derivatives[0].abs().max() > 0
    corrected = parts.model_with(state, model)
    assert torch.equal(corrected.eval()(images), functional_call(parts.head, state, parts.trunk(images)))


def test_training_reaches_only_dropout_behind_the_layer(model: Untraceable, images: Tensor) -> None:
    parts = split(model, "block1", example=images)
    parts.train_mode()
    assert torch.equal(parts.trunk(images)[0], parts.trunk(images)[0])
    assert not torch.equal(together(parts, images), together(parts, images))
    assert [module.p for module in parts.random] == [model.drop.p]
    early = split(model, "hidden", example=images)
    early.train_mode()
    assert torch.equal(together(early, images), together(early, images))


def test_the_cached_tensors_and_the_model_stay_as_they_were(model: Untraceable, images: Tensor) -> None:
    before = copy.deepcopy(model.state_dict())
    parts = split(model, "block2.bn", example=images)
    kept = parts.trunk(images)
    copies = [tensor.clone() for tensor in kept]
    parts.head(*kept)
    assert all(torch.equal(old, new) for old, new in zip(copies, kept))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for module in (*model.modules(), *parts.trunk.modules(), *parts.head.modules()):
        assert not module._forward_hooks


def test_hooks_are_removed_after_an_error(model: Untraceable, images: Tensor) -> None:
    parts = split(model, "block1", example=images)
    with pytest.raises(RuntimeError, match="channels"):
        parts.trunk(images[:, :2])
    with pytest.raises(RuntimeError, match="size"):
        parts.head(torch.zeros(3, 9, 6, 6), images)
    assert not any(m._forward_hooks for part in (parts.trunk, parts.head) for m in part.modules())


@pytest.mark.parametrize(
    ("layer", "error", "sentence"),
    [
        ("block3", LayerNotFoundError, "Did you mean 'block.'.*only modules are layers"),
        ("unused", LayerNotFoundError, "does not call 'unused'"),
        ("block1.relu", AmbiguousLayerError, "calls 'block1.relu' 2 times"),
        ("fc", SplitError, "No trainable parameter of Untraceable follows 'fc'"),
    ],
)
def test_layers_that_cannot_be_used(
    model: Untraceable, images: Tensor, layer: str, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        split(model, layer, example=images)


def test_tied_weights_are_refused(model: Untraceable, images: Tensor) -> None:
    model.block2.conv1.weight = model.block1.conv1.weight
    with pytest.raises(SplitError, match=r"'block1\.conv1\.weight' of Untraceable is used before and after 'block1'"):
        split(model, "block1", example=images)


def test_a_layer_that_is_not_called_is_noticed(model: Untraceable, images: Tensor) -> None:
    with (
        pytest.raises(SplitError, match="called 'unused' 0 times on these images"),
        output_edited(model, "unused", lambda output: output),
    ):
        model(images)
