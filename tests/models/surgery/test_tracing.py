"""Questions about shapes are answered while a model is traced; those about the images themselves are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.errors import SplitError
from hansfree.models.surgery import insert_after, split
from hansfree.models.surgery.graph import trace
from hansfree.models.surgery.tracing import image_shapes

Question = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Asking(nn.Module):
    """A convolution, what a question makes of its maps, pooling and a linear layer."""

    def __init__(self, question: Question, **facts: object) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
        self.question = question
        for name, value in facts.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)
        return self.fc((self.question(self, x, maps) + 1).mean((2, 3)))


def refuses_other_channels(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    if x.shape[1] != model.conv.in_channels:
        raise ValueError("wrong channels")
    return maps


def asks_behind_a_module(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps if maps.shape[1] == 4 and maps.dim() == 4 else maps * 100


def asks_for_the_type(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps.to(x.dtype) if x.dtype != model.conv.weight.dtype else maps


def spreads_a_shape(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps.reshape((*maps.shape[:2], -1)).reshape(maps.shape)


def measures_a_shape(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps * len(maps.shape)


def takes_one_size(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    if tuple(x.shape[2:]) != (48, 48):
        raise ValueError("wrong size")
    return maps


@pytest.mark.parametrize(
    ("question", "facts"),
    [
        (refuses_other_channels, {}),
        (asks_behind_a_module, {}),
        (asks_for_the_type, {}),
        (spreads_a_shape, {}),
        (measures_a_shape, {}),
        (takes_one_size, {"image_size": 48}),
        (takes_one_size, {"img_size": (48, 48)}),
    ],
)
def test_answered_by_shapes(question: Question, facts: dict[str, object]) -> None:
    model = Asking(question, **facts).eval()
    images = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    parts = split(model, "add", example=images)
    assert parts.traced
    expected = model(images)
    torch.testing.assert_close(parts.head(*parts.phi(*parts.trunk(images))), expected)
    edited = insert_after(model, "add", nn.Identity())  # without an example: the graph is found again
    torch.testing.assert_close(edited(images), expected)


def test_a_model_without_questions_loads_nothing_that_answers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.models.surgery.tracing.FakeTensorMode", None)
    assert split(Asking(lambda _model, _x, maps: maps).eval(), "add").traced


def other_branch_for_large_images(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps * 2 if x.shape[2] > 100 else maps


def other_branch_for_one_image(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps * 2 if x.shape[0] == 1 else maps


def looks_at_the_numbers(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps * 2 if x.sum() > 0 else maps


def loops_over_the_images(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return torch.stack([one * 2 for one in maps])


def counts_the_images(model: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    return maps * len(maps)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (other_branch_for_large_images, "it does other things with images of another size or number"),
        (other_branch_for_one_image, "it does other things with images of another size or number"),
        (looks_at_the_numbers, "a branch depends on the images' own numbers"),
        (loops_over_the_images, "a loop or a length depends on the images"),
        (counts_the_images, "a loop or a length depends on the images"),
    ],
)
def test_one_graph_for_all_images_or_none(question: Question, sentence: str) -> None:
    model = Asking(question).eval()
    with pytest.raises(SplitError, match=f"^Asking cannot be traced: {sentence}"):
        trace(model)
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    parts = split(model, "conv", example=images)
    assert not parts.traced
    assert torch.equal(parts.head(*parts.phi(*parts.trunk(images))), model(images))


def test_no_shape_that_the_model_takes_is_its_own_error() -> None:
    with pytest.raises(SplitError, match=r"^Asking cannot be traced: wrong size\.$"):
        trace(Asking(takes_one_size))


def test_the_models_own_size_comes_first() -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image_size, self.conv = (40, 24), nn.Conv2d(1, 2, 3)

    shapes = image_shapes(nn.Sequential(Patches()))
    assert shapes[:2] == [(2, 1, 40, 24), (1, 1, 40, 24)]
    assert all(shape[:2] == (2, 1) for shape in shapes[2:])
    assert image_shapes(nn.Flatten())[0] == (2, 3, 224, 224)


def test_the_number_of_images_before_the_layer() -> None:
    class Token(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.block, self.fc = nn.Parameter(torch.ones(1, 3)), nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            count = x.shape[0]
            return self.fc(self.block(self.token.expand(count, -1) + x.mean((2, 3))))

    model, images = Token().eval(), torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    parts = split(model, "block", example=images)
    assert parts.traced
    torch.testing.assert_close(parts.head(*parts.phi(*parts.trunk(images))), model(images))


class Functional(nn.Module):
    """Batch norm as a call, with the flag by place or by name."""

    def __init__(self, training: bool, *, by_name: bool) -> None:
        super().__init__()
        self.use_batch, self.by_name = training, by_name
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.by_name:
            return functional.batch_norm(x, self.mean, self.var, training=self.use_batch)
        return functional.batch_norm(x, self.mean, self.var, None, None, self.use_batch)


class Net(nn.Module):
    def __init__(self, norm: nn.Module, *, traceable: bool, deep: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), norm, nn.Linear(4, 2)
        self.traceable = traceable
        if deep:
            norm.add_module("inner", nn.Identity())  # with a child the tracer looks inside

    def forward(self, x: Tensor) -> Tensor:
        if not self.traceable and x.sum() > 1e9:
            return x
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


IMAGES = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("traceable", [True, False])
@pytest.mark.parametrize("layer", ["conv", "norm"])
@pytest.mark.parametrize("kind", ["module", "by name", "by place"])
def test_refused(traceable: bool, layer: str, kind: str) -> None:
    norm = (
        nn.BatchNorm2d(4, track_running_stats=False) if kind == "module" else Functional(True, by_name=kind[3] == "n")
    )
    with pytest.raises(SplitError, match="statistics of the batch in eval mode"):
        split(Net(norm, traceable=traceable), layer, example=IMAGES)


@pytest.mark.parametrize("by_name", [True, False])
def test_refused_without_an_example_where_the_graph_shows_it(by_name: bool) -> None:
    with pytest.raises(SplitError, match=r"'norm' of Net normalises by the statistics of the batch"):
        split(Net(nn.BatchNorm2d(4, track_running_stats=False), traceable=True), "conv")
    with pytest.raises(SplitError, match=r"'batch_norm' of Net normalises by the statistics of the batch"):
        split(Net(Functional(True, by_name=by_name), traceable=True, deep=True), "conv")


@pytest.mark.parametrize("traceable", [True, False])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4), Functional(False, by_name=True)])
def test_others_pass(traceable: bool, norm: nn.Module) -> None:
    model = Net(norm, traceable=traceable).eval()
    parts = split(model, "conv", example=IMAGES)
    assert parts.traced is traceable
    torch.testing.assert_close(parts.head(*parts.phi(*parts.trunk(IMAGES))), model(IMAGES))
