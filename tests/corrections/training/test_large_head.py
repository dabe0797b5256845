"""Training in the coordinates of the images' span, against the plain steps that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hansfree as hf
from hansfree.activations import Features, FeatureSpec, collect_activations, compute_features, cut_at
from hansfree.cavs import SignalCAV
from hansfree.corrections import RRR, AClArC, RRClArC, RRClArCStep, Vanilla
from hansfree.corrections.selection import slope_sizes
from hansfree.corrections.training import FineTuning, head_loop, large_head

IMAGES, CLASSES = 24, 3


class Wide(nn.Module):
    """A convolution, and a head that starts with more inputs than there are images, with dropout, as VGG-16's does."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Sequential(
            nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, CLASSES)
        )

    def forward(self, images):
        return self.head(self.features(images))


@pytest.fixture(scope="module")
def world():
    torch.manual_seed(0)
    model = Wide().eval()
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.randn(IMAGES, 3, 8, 8, generator=generator), torch.arange(IMAGES) % CLASSES
    marked = torch.arange(IMAGES) % 2 == 0
    images[marked, :, :2] += 2
    data = [(image, int(label)) for image, label in zip(images, labels)]
    activations = collect_activations(model, "features", data)
    held_out = collect_activations(model, "features", [(image.flip(1), label) for image, label in data[:10]])
    cut = cut_at(model, activations)
    cav = SignalCAV().fit(activations.pooled, marked.numpy())
    return cut, activations, held_out, cav


def train(monkeypatch, world, make, *, spans, strengths=(0.5, 2.0), optimizer="sgd"):
    cut, activations, held_out, cav = world
    used = []
    monkeypatch.setattr(large_head, "MIN_WEIGHTS", 1 if spans else 10**12)
    monkeypatch.setattr(large_head.Span, "__init__", counted(large_head.Span.__init__, used))
    tuning = FineTuning(optimizer=optimizer, learning_rate=0.05, epochs=3, batch_size=8)
    correction = make(cav, tuning)
    probed = compute_features(cut, held_out, FeatureSpec(directions=cav.directions_))

    def watch(heads):
        sizes = slope_sizes(heads, [probed], 0)
        return [(logits, size) for logits, size in zip(heads.logits(probed), sizes)]

    heads = list(correction.train(cut, activations, strengths, watch=watch))
    return heads, len(used)


def counted(init, used):
    def wrapper(self, *arguments):
        used.append(self)
        init(self, *arguments)

    return wrapper


METHODS = {
    "vanilla": lambda cav, tuning: Vanilla(tuning=tuning),
    "rr-clarc": lambda cav, tuning: RRClArC(cav, tuning=tuning),
    "random": lambda cav, tuning: RRClArC(cav, target="random", tuning=tuning),
    "step": lambda cav, tuning: RRClArCStep(cav, tuning=tuning),
    "a-clarc": lambda cav, tuning: AClArC(cav, tuning=tuning),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_steps_are_those_of_the_plain_recipe(monkeypatch, world, method):
    with monkeypatch.context() as patch:
        plain, never = train(patch, world, METHODS[method], spans=False)
    with monkeypatch.context() as patch:
        spanned, once = train(patch, world, METHODS[method], spans=True)
    assert (never, once) == (0, 1)
    start = {name: weight.detach() for name, weight in world[0].head_parameters().items()}
    for one, other in zip(plain, spanned, strict=True):
        assert (one.is_finite, other.is_finite) == (True, True)
        for name, weight in one.state.items():
            assert other.state[name].shape == weight.shape
            moved = (weight - start[name]).abs().max()
            assert moved > 1e-4  # all of it was trained
            torch.testing.assert_close(other.state[name], weight, rtol=0, atol=1e-3 * float(moved))
        for (logits, size), (others, other_size) in zip(one.history, other.history, strict=True):
            torch.testing.assert_close(others, logits, rtol=1e-3, atol=1e-4)
            assert other_size == pytest.approx(size, rel=1e-3)


def drawn(images, inputs=40, *, directions=2):
    """Values and tangents."""
    generator = np.random.default_rng(0)
    values, tangents = (
        np.float32(generator.normal(size=(*shape, inputs))) for shape in ((images,), (images, directions))
    )
    return Features((values,), (tangents,), np.arange(images) % CLASSES, 1)


def test_what_lies_on_disk_stays_there(tmp_path):
    features = drawn(5)
    for name, array in (("values", features.values[0]), ("tangents", features.tangents[0])):
        np.save(tmp_path / f"{name}.npy", array)
    on_disk = Features(
        (np.load(tmp_path / "values.npy", mmap_mode="r"),),
        (np.load(tmp_path / "tangents.npy", mmap_mode="r"),),
        features.labels,
        1,
    )
    found = large_head.Span("w", torch.randn(7, 40), features)
    in_memory, written = found.written(features), found.written(on_disk)
    for one, other in zip((*in_memory.values, *in_memory.tangents), (*written.values, *written.tangents), strict=True):
        assert isinstance(other, np.memmap)
        np.testing.assert_array_equal(one, other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tangents.npy", "values.npy"]


def test_what_needs_more_than_features_is_left_alone(world):
    cut, activations, _, cav = world
    plain, cosine = Vanilla(), RRClArC(cav, target="all", norm="cosine")
    features = [compute_features(cut, activations, method.features(activations)) for method in (plain, cosine)]
    assert [head_loop._reads_features(plain, each) for each in features] == [True, False]
    assert not head_loop._reads_features(RRR(hf.SyntheticLesions(4, size=32)), features[0])


@pytest.mark.parametrize(("images", "coordinates"), [(24, 48), (64, 128), (65, None)])  # a quarter of the 512 inputs
def test_how_many_coordinates_there_are(monkeypatch, world, images, coordinates):
    monkeypatch.setattr(large_head, "MIN_WEIGHTS", 1)
    found = large_head.Span.where_smaller(world[0], drawn(images, 8 * 64, directions=1), "cpu")
    assert (None if found is None else found.start.shape[1]) == coordinates
