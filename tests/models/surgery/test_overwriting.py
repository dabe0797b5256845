import pytest
import torch
from torch import nn

from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import overwriting, split
from hansfree.models.surgery.fast_trunk import add_into

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def in_place(trunk):
    called = {str(node.target) for node in trunk.graph.nodes if node.op == "call_module"}
    return [name for name in called if getattr(trunk.get_submodule(name), "inplace", False)]


def sums_in_place(trunk):
    return sum(node.target is add_into for node in trunk.graph.nodes)


@pytest.mark.parametrize(
    ("name", "activations", "sums"), [("demo", 3, 0), ("resnet18", 16, 8), ("efficientnet_b0", 48, 0)]
)
def test_the_numbers_stay_and_what_can_overwrites(name, activations, sums):
    # efficientnet_b0: stochastic depth, which hands on its input, stands before every sum
    trunk = split(build_model(name, classes=2).eval(), ARCHITECTURES[name].layer).trunk
    with torch.no_grad():
        expected = trunk(IMAGES)
        result = overwriting(trunk)
        for got, wanted in zip(result(IMAGES.clone()), expected, strict=True):
            assert torch.equal(got, wanted)
        assert torch.equal(trunk(IMAGES)[0], expected[0])
    assert (len(in_place(result)), sums_in_place(result)) == (activations, sums)
    assert (in_place(trunk), sums_in_place(trunk)) == ([], 0)


def test_weights_are_shared():
    trunk = split(build_model("demo", classes=2).eval(), "features.10").trunk
    ours = dict(overwriting(trunk).named_parameters())
    assert all(ours[name] is parameter for name, parameter in trunk.named_parameters())


class ReadTwice(nn.Module):
    """The convolution's output is read again after the activation, and the input goes through one as well."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1)
        self.relu = nn.ReLU()
        self.last = nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, images):
        convolved = self.convolution(self.relu(images))
        return self.head(self.last(self.relu(convolved) + convolved).mean((2, 3)))


def test_what_others_read_is_not_overwritten():
    trunk = split(ReadTwice().eval(), "last").trunk
    result = overwriting(trunk)
    images = IMAGES.clone()
    with torch.no_grad():
        assert torch.equal(result(images)[0], trunk(IMAGES)[0])
    assert torch.equal(images, IMAGES)
    assert in_place(result) == []


class Sums(nn.Module):
    """Sums of many kinds: with a number, a size, a smaller tensor, itself, and one that is read again."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, images):
        x = self.first(images) + images.size(2)
        small = self.second(images).mean((2, 3), keepdim=True)
        x = self.third(x) + small + 1
        again = self.second(x)
        x = again + self.first(images) + again
        return self.head(self.last(x + x).mean((2, 3)))


def test_sums_of_every_kind_keep_their_numbers():
    trunk = split(Sums().eval(), "last").trunk
    result = overwriting(trunk)
    images = IMAGES.clone()
    with torch.no_grad():
        assert torch.equal(result(images)[0], trunk(IMAGES)[0])
    assert torch.equal(images, IMAGES)
    assert sums_in_place(result) > 0


def test_a_trunk_without_a_graph_is_returned_itself():
    trunk = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    assert overwriting(trunk) is trunk
