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
from tests.models.zoo import Wired, together

Question = Callable[[nn.Module, Tensor, Tensor], Tensor]


def asking(question: Question, **facts: object) -> nn.Module:
    """Return a convolution, what a question makes of its maps, pooling and a linear layer."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        return net.fc((question(net, x, net.conv(x)) + 1).mean((2, 3)))

    return Wired(run, conv=nn.Conv2d(3, 4, 3), fc=nn.Linear(4, 2), **facts).eval()


def takes_one_size(net: nn.Module, x: Tensor, maps: Tensor) -> Tensor:
    if tuple(x.shape[2:]) != (48, 48):
        raise ValueError("wrong size")
    return maps


@pytest.mark.parametrize(
    ("question", "facts"),
    [
        (lambda net, x, maps: maps if maps.shape[1] == 4 and maps.dim() == 4 else maps * 100, {}),
        (lambda net, x, maps: maps.to(x.dtype) if x.dtype != net.conv.weight.dtype else maps, {}),
        (lambda net, x, maps: maps.reshape((*maps.shape[:2], -1)).reshape(maps.shape), {}),
        (lambda net, x, maps: maps * len(maps.shape), {}),
        (takes_one_size, {"image_size": 48}),
        (takes_one_size, {"img_size": (48, 48)}),
    ],
)
def test_answered_by_shapes(question: Question, facts: dict[str, object]) -> None:
    model = asking(question, **facts)
    images = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    parts = split(model, "add", example=images)
    assert parts.traced
    expected = model(images)
    torch.testing.assert_close(together(parts, images), expected)
    edited = insert_after(model, "add", nn.Identity())  # without an example: the graph is found again
    torch.testing.assert_close(edited(images), expected)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (lambda net, x, maps: maps * 2 if x.shape[2] > 100 else maps, "it does other things with images of another"),
        (lambda net, x, maps: maps * 2 if x.shape[0] == 1 else maps, "it does other things with images of another"),
        (lambda net, x, maps: maps * 2 if x.sum() > 0 else maps, "a branch depends on the images' own numbers"),
        (lambda net, x, maps: torch.stack([one * 2 for one in maps]), "a loop or a length depends on the images"),
        (lambda net, x, maps: maps * len(maps), "a loop or a length depends on the images"),
        (takes_one_size, r"wrong size\.$"),
    ],
)
def test_one_graph_for_all_images_or_none(question: Question, sentence: str) -> None:
    model = asking(question)
    with pytest.raises(SplitError, match=f"^Wired cannot be traced: {sentence}"):
        trace(model)
    images = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    parts = split(model, "conv", example=images)
    assert not parts.traced
    assert torch.equal(parts.head(*parts.phi(*parts.trunk(images))), model(images))


def test_the_models_own_size_comes_first() -> None:
    shapes = image_shapes(nn.Sequential(Wired(asking, image_size=(40, 24), conv=nn.Conv2d(1, 2, 3))))
    assert shapes[:2] == [(2, 1, 40, 24), (1, 1, 40, 24)]
    assert all(shape[:2] == (2, 1) for shape in shapes[2:])
    assert image_shapes(nn.Flatten())[0] == (2, 3, 224, 224)


def test_the_number_of_images_before_the_layer() -> None:
    def run(net: nn.Module, x: Tensor) -> Tensor:
        count = x.shape[0]
        return net.fc(net.block(net.token.expand(count, -1) + x.mean((2, 3))))

    model = Wired(run, token=nn.Parameter(torch.ones(1, 3)), block=nn.Linear(3, 3), fc=nn.Linear(3, 2)).eval()
    images = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    parts = split(model, "block", example=images)
    assert parts.traced
    torch.testing.assert_close(together(parts, images), model(images))


def functional_norm(*, training: bool, by_name: bool) -> nn.Module:
    """Return batch norm as a call, with the flag by place or by name."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        if by_name:
            return functional.batch_norm(x, net.mean, net.var, training=training)
        return functional.batch_norm(x, net.mean, net.var, None, None, training)

    # With a child, the tracer looks inside.
    return Wired(run, mean=torch.zeros(4), var=torch.ones(4), inner=nn.Identity())


NORMS = {
    "module": lambda is_wrong: nn.BatchNorm2d(4, track_running_stats=not is_wrong),
    "by name": lambda is_wrong: functional_norm(training=is_wrong, by_name=True),
    "by place": lambda is_wrong: functional_norm(training=is_wrong, by_name=False),
    "instance": lambda _: nn.InstanceNorm2d(4),
}
IMAGES = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def with_norm(norm: nn.Module, *, traceable: bool) -> nn.Module:
    def run(net: nn.Module, x: Tensor) -> Tensor:
        if not traceable and x.sum() > 1e9:
            return x
        return net.fc(net.norm(net.conv(x)).relu().mean((2, 3)))

    return Wired(run, conv=nn.Conv2d(3, 4, 3), norm=norm, fc=nn.Linear(4, 2)).eval()


@pytest.mark.parametrize("traceable", [True, False])
@pytest.mark.parametrize("kind", NORMS)
def test_statistics_of_the_batch_are_refused(traceable: bool, kind: str) -> None:
    model = with_norm(NORMS[kind](False), traceable=traceable)
    parts = split(model, "conv", example=IMAGES)
    assert parts.traced is traceable
    torch.testing.assert_close(together(parts, IMAGES), model(IMAGES))
    wrong = with_norm(NORMS[kind](True), traceable=traceable)
    for layer in ("conv", "norm") if kind != "instance" else ():
        with pytest.raises(SplitError, match="statistics of the batch in eval mode"):
            split(wrong, layer, example=IMAGES)
        if traceable:  # the graph shows it without an example
            name = "norm" if kind == "module" else "batch_norm"
            with pytest.raises(SplitError, match=rf"'{name}' of Wired normalises by the statistics of the batch"):
                split(wrong, layer)
