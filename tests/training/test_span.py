"""Training in the coordinates of the images' span, against the plain steps that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hansfree as hf
from hansfree.activations import Features, collect_activations, compute_features, cut_again
from hansfree.cavs import SignalCAV
from hansfree.corrections import RRR, AClArC, RRClArC, RRClArCStep, Vanilla
from hansfree.selection.validator import slope_sizes
from hansfree.training import FineTuning, Heads, span

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
    cut = cut_again(model, activations)
    cav = SignalCAV().fit(activations.pooled, marked.numpy())
    return cut, activations, held_out, cav


def train(monkeypatch, world, make, *, spans, strengths=(0.5, 2.0), optimizer="sgd"):
    cut, activations, held_out, cav = world
    used = []
    monkeypatch.setattr(span, "_LARGE", 1 if spans else 10**12)
    monkeypatch.setattr(span.Span, "__init__", counted(span.Span.__init__, used))
    tuning = FineTuning(optimizer=optimizer, learning_rate=0.05, epochs=3, batch_size=8)
    correction = make(cav, tuning)
    probed = compute_features(cut, held_out, directions=cav.directions_)

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


def test_two_directions_have_their_tangents_in_the_span():
    generator = np.random.default_rng(0)
    values, tangents = generator.normal(size=(5, 40)), generator.normal(size=(5, 2, 40))
    features = Features((np.float32(values),), (np.float32(tangents),), np.arange(5), 1)
    weight = torch.randn(7, 40)
    found = span.Span("w", weight, features)
    (own,), (along,) = found.features.rows(slice(None))
    torch.testing.assert_close(own @ found.start.T, torch.tensor(np.float32(values)) @ weight.T, rtol=1e-4, atol=1e-4)
    expected = torch.tensor(np.float32(tangents)).movedim(1, 0) @ weight.T
    torch.testing.assert_close(along @ found.start.T, expected, rtol=1e-4, atol=1e-4)


def test_images_that_are_the_same_do_no_harm():
    rows = np.float32(np.ones((6, 40)))
    found = span.Span("w", torch.randn(7, 40), Features((rows,), (), np.arange(6), 1))
    assert np.isfinite(found.features.values[0]).all()
    assert torch.isfinite(found.whole(found.start + 1)).all()


def test_adam_and_many_images_are_left_alone(monkeypatch, world):
    _, used = train(monkeypatch, world, METHODS["vanilla"], spans=True, optimizer="adam")
    assert used == 0
    monkeypatch.setattr(span, "_SHARE", 1000)
    _, used = train(monkeypatch, world, METHODS["vanilla"], spans=True)
    assert used == 0


def test_what_needs_more_than_features_is_left_alone(world):
    assert not RRR(hf.SyntheticLesions(4, size=32)).reads_features
    assert not RRClArC(world[3], target="all", norm="cosine").reads_features


def test_a_head_answers_alike_before_training(monkeypatch, world):
    cut, activations, held_out, _ = world
    features, others = compute_features(cut, activations), compute_features(cut, held_out)
    monkeypatch.setattr(span, "_LARGE", 1)
    found = span.Span.where_smaller(cut, features, "cpu")
    heads, plain = Heads(cut, 2, "cpu", span=found), Heads(cut, 2, "cpu")
    torch.testing.assert_close(heads.logits(others), plain.logits(others), rtol=1e-4, atol=1e-5)
    assert heads.parameters[found.name].shape[2] < plain.parameters[found.name].shape[2]
    for name, weight in heads.state(1).items():
        torch.testing.assert_close(weight, plain.state(1)[name], rtol=1e-4, atol=1e-5)
