"""The paper's steps compute what ours compute, and nothing that they could do without."""

from __future__ import annotations

import itertools

import pytest
import torch
from benchmarks.speed.reference import PaperRRR, PaperTraining
from torch import nn
from torch.func import jvp

from hansfree.cavs import SignalCAV
from hansfree.corrections import RRR, RRClArC
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch
from hansfree.data.examples import Example
from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import exact_forward_mode, split

CLASSES, IMAGES = 3, 5


@pytest.fixture
def model():
    return build_model("demo", classes=CLASSES).double().eval()


@pytest.fixture
def images():
    return torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def direction():
    return torch.randn(128, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


LABELS = torch.arange(IMAGES) % CLASSES


def paper(model, direction, strength=0.7):
    cut = split(model, ARCHITECTURES["demo"].layer)
    return PaperTraining(
        model,
        ARCHITECTURES["demo"].following,
        cut.trainable,
        direction,
        strength=strength,
        tuning=FineTuning(learning_rate=0.1),
    )


def our_gradients(model, images, direction, *, target, seed=0, strength=0.7):
    """Take the gradient of RR-ClArC's own objective, with values and tangents at the head's input."""
    cut = split(model, ARCHITECTURES["demo"].layer)
    with torch.no_grad():
        live = cut.trunk(images)
        spread = direction[None, :, None, None].expand_as(live[0])
        with exact_forward_mode():
            values, tangents = jvp(lambda a: cut.phi(a), live, (spread,))
    noise = torch.Generator().manual_seed(seed)
    batch = HeadBatch(values, tuple(t[None] for t in tangents), LABELS, LABELS.numpy(), noise, cut.trunk, cut.phi)
    parameters = cut.head_parameters()
    with exact_forward_mode():
        head = FunctionalHead(cut.head_parts(), parameters)
        logits, penalty = RRClArC(SignalCAV(), target=target).loss_terms(head, batch)
        loss = nn.functional.cross_entropy(logits, LABELS) + strength * penalty.mean()
    return torch.autograd.grad(loss, list(parameters.values()))


def test_the_papers_step_has_our_gradient_for_the_same_signs(model, images, direction):
    def signs(logits):
        return 2 * torch.randint(0, 2, logits.shape, generator=torch.Generator().manual_seed(0)).to(logits) - 1

    theirs = paper(model, direction)
    got = torch.autograd.grad(theirs.loss(images, LABELS, signs), theirs.trained)
    for ours, expected in zip(our_gradients(model, images, direction, target="random"), got, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_the_papers_gradient_over_all_signs_is_our_expected_one(model, images, direction):
    theirs = paper(model, direction)
    every = [torch.tensor(signs, dtype=torch.float64) for signs in itertools.product((-1, 1), repeat=CLASSES)]
    got = [torch.autograd.grad(theirs.loss(images, LABELS, lambda _, m=m: m), theirs.trained) for m in every]
    for ours, *expected in zip(our_gradients(model, images, direction, target="expected"), *got, strict=True):
        torch.testing.assert_close(ours, torch.stack(expected).mean(0), rtol=1e-9, atol=1e-12)


def test_the_papers_step_trains_the_head_only_and_leaves_nothing_behind(model, images, direction):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    theirs = paper(model, direction)
    theirs.step(images, LABELS)
    changed = {name for name, value in theirs.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in theirs.model.modules())


def test_the_papers_graph_stays_out_of_the_frozen_trunk(model, images, direction):
    theirs = paper(model, direction)
    reached = []
    trunk = theirs.model.features[:11]  # up to the layer, features.10
    for module in trunk:
        module.register_forward_hook(lambda module, inputs, output: reached.append(output.grad_fn))
    theirs.loss(images, LABELS, torch.sign)
    assert len(reached) == 11
    assert reached == [None] * 11


@pytest.mark.parametrize("name", ["demo", "resnet18", "efficientnet_b0", pytest.param("vgg16", marks=pytest.mark.slow)])
def test_what_enters_the_named_activation_is_the_layers_output(name):
    model = build_model(name, classes=2).eval()
    images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    (expected, *_) = split(model, ARCHITECTURES[name].layer).trunk(images)
    entered = []
    following = ARCHITECTURES[name].following
    model.get_submodule(following.module).register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0].clone()))
    with torch.no_grad():
        model(images)
    torch.testing.assert_close(entered[following.call], expected)


def test_the_papers_rrr_has_our_gradient(model, images):
    masks = torch.rand(IMAGES, 32, 32, generator=torch.Generator().manual_seed(2)) < 0.2
    cut = split(model, ARCHITECTURES["demo"].layer)
    theirs = PaperRRR(model, cut.trainable, strength=0.7, tuning=FineTuning())
    expected = torch.autograd.grad(theirs.loss(images, LABELS, masks), theirs.trained)
    with torch.no_grad():
        values = cut.phi(*cut.trunk(images))
    parameters = cut.head_parameters()
    head = FunctionalHead(cut.head_parts(), parameters)
    examples = [Example(image, int(label), True, mask, 0) for image, label, mask in zip(images, LABELS, masks)]
    rows = torch.arange(IMAGES).numpy()
    batch = HeadBatch(values, (), LABELS, rows, torch.Generator(), cut.trunk, cut.phi)
    with exact_forward_mode():
        logits, penalty = RRR(examples).loss_terms(head, batch)
        loss = nn.functional.cross_entropy(logits, LABELS) + 0.7 * penalty.mean()
    for got, wanted in zip(torch.autograd.grad(loss, list(parameters.values())), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12)


def test_the_papers_rrr_trains_the_head_only(model, images):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cut = split(model, ARCHITECTURES["demo"].layer)
    theirs = PaperRRR(model, cut.trainable, strength=0.7, tuning=FineTuning(learning_rate=0.1))
    theirs.step(images, LABELS, torch.ones(IMAGES, 32, 32, dtype=torch.bool))
    changed = {name for name, value in theirs.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
