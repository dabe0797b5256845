import pytest
import torch
from torch import nn

from hansfree.models import ARCHITECTURES, build_model
from hansfree.splitting import overwriting, split

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def in_place(trunk):
    called = {str(node.target) for node in trunk.graph.nodes if node.op == "call_module"}
    return [name for name in called if getattr(trunk.get_submodule(name), "inplace", False)]


@pytest.mark.parametrize(("name", "count"), [("demo", 3), ("resnet18", 9), ("efficientnet_b0", 48)])
def test_the_numbers_stay_and_the_activations_overwrite(name, count):
    # resnet18: the stem's and one ReLU per block follow a batch norm; those after a sum keep memory of their own
    trunk = split(build_model(name, classes=2).eval(), ARCHITECTURES[name].layer).trunk
    with torch.no_grad():
        expected = trunk(IMAGES)
        result = overwriting(trunk)
        for got, wanted in zip(result(IMAGES.clone()), expected, strict=True):
            assert torch.equal(got, wanted)
        assert torch.equal(trunk(IMAGES)[0], expected[0])
    assert len(in_place(result)) == count
    assert in_place(trunk) == []


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


def test_a_trunk_without_a_graph_is_returned_itself():
    trunk = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    assert overwriting(trunk) is trunk
