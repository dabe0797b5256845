"""The path of 22 strengths along the images' leading directions, against the same along all of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hansfree as hf
from hansfree.activations import compute_features, cut_again
from hansfree.corrections.training import span

CLASSES, IMAGES, LEADING = 3, 300, 120  # a fifth of the directions that images and tangents span


class Wide(nn.Module):
    """A convolution, and a head that starts with many inputs, as VGG-16's does."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, images):
        return self.head(self.features(images))


def drawn(images, seed, *, marked):
    """Noise with a pattern per class; where it is marked, two bright rows that cover a part of it."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(images) % CLASSES
    pictures = torch.randn(images, 3, 8, 8, generator=generator) + 0.35 * patterns[labels]
    bits = marked(labels, torch.arange(images))
    pictures[bits, :, :2] += 1.5
    return [(picture, int(label), bool(bit)) for picture, label, bit in zip(pictures, labels, bits)]


@pytest.fixture(scope="module")
def world():
    """A model that has learned the artifact, and what it is corrected and tested on."""
    torch.manual_seed(0)
    model = Wide().eval()
    sets = (
        drawn(IMAGES, 1, marked=lambda labels, rows: (labels == 0) & (rows % 2 == 0)),
        drawn(800, 2, marked=lambda labels, rows: labels < 0),
        drawn(800, 2, marked=lambda labels, rows: labels >= 0),
    )
    train, *held_out = (hf.collect_activations(model, "features", part) for part in sets)
    poisoned = hf.Vanilla(tuning=hf.FineTuning(learning_rate=0.03, epochs=15))
    (head,) = poisoned.train(cut_again(model, train), train, [0.0])
    model.load_state_dict({**model.state_dict(), **head.state})
    inside = train.labels == 0
    cav = hf.SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
    return model, train, held_out, cav


def walk(world, leading):
    """Return accuracies without and with the artifact for every strength that did not diverge."""
    model, train, held_out, cav = world
    cut = cut_again(model, train)
    clean, biased = (compute_features(cut, each) for each in held_out)

    def score(heads):
        assert (heads.span is None) == (leading == "all")
        right = [(heads.logits(each).argmax(2).numpy() == each.labels).mean(1) for each in (clean, biased)]
        return list(zip(*right))

    method = hf.RRClArC(cav, tuning=hf.FineTuning(learning_rate=3e-3, leading=leading))
    heads = method.train(cut, train, hf.RRClArC.grid, watch=score)
    return {head.strength: head.history[-1] for head in heads if head.is_finite}


def test_accuracy_with_the_artifact_is_the_same_at_every_strength(monkeypatch, world):
    monkeypatch.setattr(span, "_LARGE", 1)
    plain, leading = walk(world, "all"), walk(world, LEADING)
    assert plain.keys() == leading.keys()
    before, best = plain[min(plain)][1], max(biased for _, biased in plain.values())
    assert best > before + 0.2  # the path leads somewhere
    for strength, (_, biased) in plain.items():
        assert leading[strength][1] == pytest.approx(biased, abs=0.0051), strength  # half a point
